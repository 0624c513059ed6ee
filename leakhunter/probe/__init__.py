"""Evidence gathered for a few steps only, after suspicion."""
