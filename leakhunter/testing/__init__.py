"""The parts of the pytest plugin: what is asked of a test, how it is repeated, read, judged and told."""
