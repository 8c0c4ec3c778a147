import torch

w = torch.tensor([2.0, 3.0], requires_grad=True)
with torch.inference_mode():
    output = w * 2
    print(output.requires_grad, output.grad_fn, torch.is_inference_mode_enabled(), output.is_inference())
try:
    (w * output).sum()
except RuntimeError as error:
    print(type(error).__name__)
copy = output.clone()
(w * copy).sum().backward()
print(w.grad, copy.is_inference())
