"""Modules of pooling, padding, resizing, gates, distances, margins, recurrence, and what they are called with: part of MODULES."""
F, N, U, P = "normal", "integers", "between 0 and 1", "each integer once"
IMAGE = {1: (F, 2, 3, 6), 2: (F, 2, 3, 6, 5), 3: (F, 2, 2, 6, 5, 4)}
CASES = {
    f"{text.format(dims)}": [IMAGE[dims]] for dims in (1, 2, 3) for text in (
        "ConstantPad{0}d(1, 2.5)", "ZeroPad{0}d(1)", "ReflectionPad{0}d(2)", "ReplicationPad{0}d((1, 2) * {0})", "CircularPad{0}d(2)",
        "MaxPool{0}d(2)", "MaxPool{0}d(3, 2, 1, ceil_mode=True)", "AvgPool{0}d(2)", "AvgPool{0}d(3, 1, 1, count_include_pad=False)",
        "AdaptiveAvgPool{0}d(3)", "AdaptiveAvgPool{0}d(1)", "AdaptiveMaxPool{0}d(3)", "LPPool{0}d(1, 2)")}
CASES |= {f"MaxUnpool{dims}d(2)": [(F, 1, 2, *[2] * dims), (P, 1, 2, *[2] * dims)] for dims in (2, 3)}
CASES |= {
    "MaxUnpool1d(4)": [(F, 1, 2, 2), (P, 1, 2, 2)], "Upsample(scale_factor=2)": [IMAGE[2]],
    "Upsample(size=4, mode='linear', align_corners=True)": [IMAGE[1]], "Upsample(scale_factor=(1.5, 2.0), mode='bicubic')": [IMAGE[2]],
    "UpsamplingNearest2d(size=(3, 8))": [IMAGE[2]], "UpsamplingBilinear2d(scale_factor=2)": [IMAGE[2]],
    "PixelShuffle(2)": [(F, 2, 8, 2, 3)], "PixelUnshuffle(2)": [(F, 2, 2, 4, 6)], "ChannelShuffle(3)": [(F, 2, 6, 2, 3)],
    "GLU()": [(F, 3, 4)], "GLU(0)": [(F, 2, 3)], "PairwiseDistance()": [(F, 3, 4), (F, 3, 4)],
    "PairwiseDistance(1.0, keepdim=True)": [(F, 3, 4), (F, 3, 4)], "LocalResponseNorm(3)": [(F, 2, 5, 3)],
    "LocalResponseNorm(2, 0.1, 0.5, 2.0)": [IMAGE[2]],
    "MarginRankingLoss(0.5)": [(F, 5), (F, 5), (N, 5)], "HingeEmbeddingLoss()": [(F, 9), (N, 9)],
    "CosineEmbeddingLoss(0.1, reduction='sum')": [(F, 9, 3), (F, 9, 3), (N, 9)],
    "TripletMarginLoss(swap=True)": [(F, 4, 3), (F, 4, 3), (F, 4, 3)], "TripletMarginWithDistanceLoss()": [(F, 4, 3), (F, 4, 3), (F, 4, 3)],
    "GaussianNLLLoss(full=True)": [(F, 3, 4), (F, 3, 4), (U, 3, 4)], "PoissonNLLLoss()": [(F, 5), (U, 5)],
    "PoissonNLLLoss(log_input=False, full=True)": [(U, 5), (U, 5)], "SoftMarginLoss()": [(F, 5), (N, 5)],
    "MultiMarginLoss(2, 0.5)": [(F, 4, 5), (N, 4)],
    "MultiLabelSoftMarginLoss(reduction='none')": [(F, 3, 4), (U, 3, 4)],
    "MultiLabelSoftMarginLoss(torch.tensor([1.0, 2.0]))": [(F, 3, 2), (U, 3, 2)],
    "RNN(3, 4)": [(F, 5, 2, 3)], "RNN(3, 4, 2, 'relu', False, True, 0.0, True)": [(F, 2, 5, 3), (F, 4, 2, 4)],
    "LSTM(3, 4)": [(F, 5, 3)],
    "LSTM(3, 4, 2, batch_first=True, bidirectional=True, proj_size=2, dtype=torch.float64)": [
        (F, 2, 5, 3), (F, 4, 2, 2), (F, 4, 2, 4)],
    "LSTM(3, 4, bias=False, dtype=torch.float64)": [(F, 9, 2, 3)], "GRU(3, 4, 2)": [(F, 5, 2, 3), (F, 2, 2, 4)],
    "GRU(3, 4, bias=False, bidirectional=True)": [(F, 5, 3)], "RNNBase('GRU', 3, 4, 2)": [(F, 5, 3)],
    "RNNCell(3, 4)": [(F, 2, 3)], "RNNCell(3, 4, False, 'relu')": [(F, 3), (F, 4)], "LSTMCell(3, 4)": [(F, 2, 3), (F, 2, 4), (F, 2, 4)],
    "LSTMCell(3, 4, bias=False)": [(F, 3)], "GRUCell(3, 4)": [(F, 2, 3), (F, 2, 4)], "GRUCell(3, 4, False, dtype=torch.float64)": [(F, 3)],
    "RNNCellBase(3, 4, True, 2)": [(F, 2, 3)]}


def flat(out):
    """What a recurrent layer or cell gives as one tuple."""
    return (out[0], *out[1]) if isinstance(out[1], tuple) else tuple(out)


CALLS = {
    "LSTM": lambda m, x, *hx: flat(m(x, hx or None)), "LSTMCell": lambda m, x, *hx: m(x, hx or None),
    "RNNBase": lambda m, x: x @ m.weight_ih_l0.t() + m.bias_hh_l1, "RNNCellBase": lambda m, x: x @ m.weight_ih.t() + m.bias_hh}
