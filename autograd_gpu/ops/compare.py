"""Comparison, logic and bits: results without a derivative."""
