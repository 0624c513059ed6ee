"""The catalogue of mistakes: how each is recognised from evidence, why it holds memory, and its fix."""
