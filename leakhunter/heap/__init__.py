"""One graph over Python objects, autograd nodes and storages."""
