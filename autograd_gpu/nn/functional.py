"""torch.nn.functional's names for the ops of ops/nn.py."""
