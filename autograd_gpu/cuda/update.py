"""Updates in place of many tensors by one kernel: what the optimizers launch, for each of their rules."""
from __future__ import annotations

import numpy as np

from autograd_gpu.cuda.launch import ACCESS, BLOCK, STORED, Program, geometry, grid, headed, index_type, walk
from autograd_gpu.cuda.source import kernel_text

CHUNK = 16 * BLOCK                           # elements of a block
ARGUMENTS = 4096                             # the most bytes of arguments that every GPU takes


class UpdateProgram(Program):
    """An update rule traced for one combination of dtypes: its results are written into its arrays, all but the first, the gradient.

    Tensors whose operands lie alike, in C or Fortran order, are updated together: as many by one launch as there is room for in its
    arguments, or one after the other where any of their operands share memory. Other tensors are updated ahead of them, by a launch each.
    """

    def __init__(self, name, function, kinds, keywords=()):
        self.into = tuple([i for i, kind in enumerate(kinds) if i and isinstance(kind, np.dtype)])
        super().__init__(name, function, kinds, keywords)
        operands = len(self.arrays)
        room = ARGUMENTS - 8 * (len(self.scalars) + 1)
        self.most = room // (8 * operands + 12) // 2 * 2         # even: no gap at the structure's end
        self.table = np.dtype([("at", np.uintp, (operands, self.most)), ("size", np.int64, self.most),
                               ("first_block", np.int32, self.most)])          # group.cu: Tensors

    def source(self, layout, single=(), ndim=0, index="long long"):
        """The CUDA text of a layout: "group", or "strided" over ndim dimensions."""
        if layout != "group":
            return super().source(layout, single, ndim, index)
        types = [f"{'' if i in self.into else 'const '}{STORED[self.kinds[i]]}*" for i in self.arrays]
        words = {
            "operands": str(len(self.arrays)), "most": str(self.most), "chunk": str(CHUNK), "access": str(ACCESS), "count": "packs",
            "own_pointers": "\n".join([f"{t} const p{i} = ({t})tensors.at[{k}][own] + start;"
                                       for k, (i, t) in enumerate(zip(self.arrays, types, strict=True))]),
            "addresses": " | ".join([f"(unsigned long long)p{i}" for i in self.arrays])}
        return headed(self.filled(kernel_text("group.cu"), "group", **words))

    def __call__(self, rows, numbers):  # type: ignore[override]
        """Update tensors. `rows`: of each its arrays, in the order of the rule's parameters; `numbers`: the rule's other arguments."""
        ahead = len(self.kinds) - len(numbers)
        scalars = [dtype.type(numbers[i - ahead]) for i, dtype in self.scalars]
        alike = []
        for row in rows:
            if not row[0].size:
                continue
            if all([a.flags.c_contiguous for a in row]) or all([a.flags.f_contiguous for a in row]):
                alike.append(row)
            else:
                self._one(row, scalars)
        if alike:
            self._several(alike, scalars)

    def _one(self, row, scalars):
        """Update a tensor whose operands lie each in a way of its own."""
        n = row[0].size
        _, sizes, strides = walk(row[0].shape, row)
        index, kind = index_type(n, sizes, strides)
        self._kernel("strided", (), len(sizes), index)(grid(n), (BLOCK,), (*row, *scalars, *geometry(kind, sizes, strides), np.int64(n)))

    def _several(self, rows, scalars):
        """Update tensors whose operands lie alike, by as few launches as their number takes."""
        sizes = np.array([row[0].size for row in rows])
        starts = np.array([[a.data.ptr for a in row] for row in rows]).T         # (operands, tensors)
        ends = starts + sizes * np.array([[self.kinds[i].itemsize] for i in self.arrays])
        order = starts.argsort(axis=None)
        apart = (ends.ravel()[order[:-1]] <= starts.ravel()[order[1:]]).all()
        blocks, most = -(-sizes // CHUNK), self.most if apart else 1
        for k in range(0, len(rows), most):
            some = slice(k, k + most)
            count, table = len(rows[some]), np.zeros((), self.table)
            table["at"][:, :count], table["size"][:count] = starts[:, some], sizes[some]
            table["first_block"][:count] = blocks[some].cumsum() - blocks[some]
            self._kernel("group")((int(blocks[some].sum()),), (BLOCK,), (table, *scalars, np.int32(count)))
