"""python -m bench gpu [--device cuda:0] [--json FILE]: measure on a GPU, in under six minutes.

python -m bench offload [--device cuda:0] [--picture]: when save_on_cpu hides its copies, by a computed schedule; at stated rates, or at
those of a device.

Exit code 0, 1 where CUDA's numbers are not the CPU's, 2 where there is no device, which the message explains.
"""
import argparse
import json
import sys
from pathlib import Path

import autograd_gpu as torch
from bench import gpu, offload


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measurements that need hardware, and a schedule that does not.")
    parser.add_argument("what", choices=["gpu", "offload"])
    parser.add_argument("--device", help="cuda or cuda:N (gpu: cuda; offload: none, stated rates)")
    parser.add_argument("--picture", action="store_true", help=f"offload: write {offload.PICTURE.name}")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args(argv)
    if args.what == "offload" and args.device is None:
        offload.main(offload.Rates(), offload.PICTURE if args.picture else None)
        return 0
    try:
        device = torch.zeros(1, device=args.device or "cuda").device
    except RuntimeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if device.type != "cuda":
        print(f"bench: {device} is no CUDA device", file=sys.stderr)
        return 2
    with torch.device(device):
        torch.cuda.set_device(device)
        if args.what == "offload":
            offload.main(offload.measured(device), offload.PICTURE if args.picture else None)
            return 0
        found = gpu.measure(device)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"figures: {args.json}")
    return 1 if found["parity"]["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
