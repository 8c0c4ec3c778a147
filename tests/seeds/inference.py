import torch

model = torch.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
x = torch.tensor([1.0, 2.0])
with torch.no_grad():
    output = torch.relu(model @ x)
print(output, output.requires_grad)


@torch.no_grad()
def evaluate(x):
    return model @ x


print(evaluate(x).requires_grad, (model @ x).requires_grad)
