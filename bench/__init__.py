"""Measurements that need hardware: python -m bench gpu --json FILE."""
