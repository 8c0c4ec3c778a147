"""Activations, clamping and choosing: relu, gelu, where, clamp."""
