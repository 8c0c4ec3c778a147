import torch

x = torch.tensor([2.0], requires_grad=True)
y = x ** 2
y.backward()
print(x.grad)
try:
    y.backward()
except RuntimeError as error:
    print("second time" in str(error))
x.grad.zero_()
y = x ** 2
y.backward(retain_graph=True)
print(x.grad)
y.backward()
print(x.grad)
