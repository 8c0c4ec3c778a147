"""Indexing, gathering, joining."""
