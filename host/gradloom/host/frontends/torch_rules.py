"""What the machine has in place of operations that it does not have; the text of a refusal."""

__all__ = ["refusal"]

_ACTIVATIONS = ("relu6", "leakyrelu", "leaky_relu", "prelu", "elu", "celu", "selu", "gelu", "silu", "mish", "hardswish",
                "hardtanh", "hardsigmoid", "softplus", "sigmoid", "tanh", "rrelu", "threshold", "clip", "clamp")
_NORMS = ("groupnorm", "layernorm", "instancenorm2d", "syncbatchnorm", "localresponsenorm", "rmsnorm", "group_norm",
          "layer_norm", "instance_norm", "batch_norm", "groupnormalization", "layernormalization", "instancenormalization",
          "lrn")
_SOFTMAX = ("softmax", "logsoftmax", "log_softmax", "softmax2d")
_POOLS = ("adaptivemaxpool2d", "adaptive_max_pool2d", "lppool2d", "fractionalmaxpool2d", "globalmaxpool", "lppool", "globallppool")
_DROPOUTS = ("alpha_dropout", "feature_dropout", "feature_alpha_dropout")
_FLAT = ("conv1d", "conv3d", "batchnorm1d", "batchnorm3d", "maxpool1d", "maxpool3d", "avgpool1d", "avgpool3d")
_QUANTISED = ("quantizelinear", "dequantizelinear", "dynamicquantizelinear", "qlinearconv", "qlinearmatmul", "convinteger",
              "matmulinteger", "quantstub", "dequantstub")
_FUNCTIONAL = ("conv2d", "linear")


def refusal(title: str) -> tuple[str, str]:
    """Reason and nearest alternative for a module, function or operator by its name."""
    name = title.lower()
    if name in _ACTIVATIONS:
        return "its activation is not one of the machine's", "use ReLU"
    if name in _NORMS:
        return "its norm is not one of the machine's", "use BatchNorm2d behind a Conv2d, which becomes L1-FRN"
    if name in _SOFTMAX:
        return "softmax belongs to the loss, which the machine computes itself", "return the logits"
    if name in _POOLS:
        return "its pool is not one of the machine's", "use MaxPool2d, AvgPool2d or AdaptiveAvgPool2d(1)"
    if name in _DROPOUTS:
        return "the machine has no dropout", "remove it"
    if name in _FLAT:
        return "the machine works on planes of rows and columns", "use the 2d module of the same kind"
    if name in ("upsample", "interpolate", "resize"):
        return ("only repeating every row and every column a whole number of times, the same both ways, is a layer (upsample)",
                "use the mode nearest and one whole scale")
    if name in ("convtranspose2d", "convtranspose"):
        return "the machine has no transposed convolution", "use an Upsample and a Conv2d behind it"
    if name in ("cat", "concat", "concatenate", "stack"):
        return "the machine adds branches and does not concatenate them", "add them after convolutions with BatchNorm2d"
    if name in _FUNCTIONAL:
        return "its parameters belong to no module of their own", "use the module, nn.Conv2d or nn.Linear"
    if name in _QUANTISED:
        return "it works on quantised numbers, and the machine trains real ones", "give the network as it was before quantisation"
    if name == "detach":
        return "it stops the backward pass, and the machine trains every layer", "remove it"
    return "the machine has no such operation", "use Conv2d, Linear, BatchNorm2d, ReLU, pools, additions and flatten"
