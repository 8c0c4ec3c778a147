"""Softmax, losses, linear: the ops behind nn.functional."""
