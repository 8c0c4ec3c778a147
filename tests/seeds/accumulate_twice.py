import torch

x = torch.tensor([2.0], requires_grad=True)
y = x ** 2
loss = y.sum()

loss.backward(retain_graph=True)
print(f"After first backward: x.grad = {x.grad}")
loss.backward(retain_graph=True)
print(f"After second backward: x.grad = {x.grad}")
try:
    x.zero_grad()
except AttributeError as error:
    print(type(error).__name__)
try:
    loss.backward(retain_graph=True, scaler=0.5)
except TypeError as error:
    print("scaler" in str(error))
x.grad.zero_()
print(f"After zeroing: x.grad = {x.grad}")
