"""Optimizers and learning rate schedules, under torch.optim's names."""
from autograd_gpu.optim import lr_scheduler
from autograd_gpu.optim.adadelta import Adadelta
from autograd_gpu.optim.adagrad import Adagrad
from autograd_gpu.optim.adam import Adam, AdamW
from autograd_gpu.optim.adamax import Adamax
from autograd_gpu.optim.nadam import NAdam
from autograd_gpu.optim.optimizer import Optimizer
from autograd_gpu.optim.radam import RAdam
from autograd_gpu.optim.rmsprop import RMSprop
from autograd_gpu.optim.sgd import SGD

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "Optimizer", "RAdam", "RMSprop", "lr_scheduler"]
