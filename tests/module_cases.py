"""Modules of pooling, padding, resizing, gates, distances and margins, and what they are called with: part of test_modules' MODULES."""
F, N, U = "normal", "integers", "between 0 and 1"
IMAGE = {1: (F, 2, 3, 6), 2: (F, 2, 3, 6, 5), 3: (F, 2, 2, 6, 5, 4)}
CASES = {
    f"{text.format(dims)}": [IMAGE[dims]] for dims in (1, 2, 3) for text in (
        "ConstantPad{0}d(1, 2.5)", "ZeroPad{0}d(1)", "ReflectionPad{0}d(2)", "ReplicationPad{0}d((1, 2) * {0})", "CircularPad{0}d(2)",
        "MaxPool{0}d(2)", "MaxPool{0}d(3, 2, 1, ceil_mode=True)", "AvgPool{0}d(2)", "AvgPool{0}d(3, 1, 1, count_include_pad=False)",
        "AdaptiveAvgPool{0}d(3)", "AdaptiveAvgPool{0}d(1)", "AdaptiveMaxPool{0}d(3)", "LPPool{0}d(1, 2)")}
CASES |= {f"MaxUnpool{dims}d(2)": [(F, 1, 2, *[2] * dims), (N, 1, 2, *[2] * dims)] for dims in (2, 3)}
CASES |= {
    "MaxUnpool1d(4)": [(F, 1, 2, 2), (N, 1, 2, 2)], "Upsample(scale_factor=2)": [IMAGE[2]],
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
    "MultiLabelSoftMarginLoss(torch.tensor([1.0, 2.0]))": [(F, 3, 2), (U, 3, 2)]}
