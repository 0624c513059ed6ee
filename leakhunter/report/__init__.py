"""Renderers: each reads a report and nothing else."""
