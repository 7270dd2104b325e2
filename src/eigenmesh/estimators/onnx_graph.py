"""Pipelines of `serving` as ONNX: what scikit-learn's Nystroem is in its operators.

skl2onnx has no converter for Nystroem, so one is registered here. It counts in float64 whatever
comes in: coefficients of landmarks that are close to each other are large, and float32 kernel
values would show their rounding in the scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline

from eigenmesh.errors import InputError
from eigenmesh.extras import extra

KERNELS = ("linear", "poly", "rbf", "cosine")


def as_onnx(pipeline: Pipeline) -> bytes:
    """The model in ONNX's own form: input "X", float32 rows, and the scores as output."""
    kernel = pipeline["kernel"].kernel
    if kernel not in KERNELS:
        raise InputError(f"ONNX has no kernel {kernel!r}; choose one of {', '.join(KERNELS)}")
    with extra("onnx", "to_onnx"):
        from skl2onnx import to_onnx, update_registered_converter
        from skl2onnx.common.data_types import FloatTensorType
    update_registered_converter(Nystroem, "EigenmeshNystroem", _shape, _graph, overwrite=True)
    rows = FloatTensorType([None, pipeline.n_features_in_])
    model: bytes = to_onnx(pipeline, initial_types=[("X", rows)]).SerializeToString()
    return model


def _shape(operator: Any) -> None:
    source = operator.inputs[0].type
    width = operator.raw_operator.normalization_.shape[0]
    operator.outputs[0].type = type(source)([source.shape[0], width])


def _graph(scope: Any, operator: Any, container: Any) -> None:
    from onnx import TensorProto
    from skl2onnx.algebra import onnx_ops as ops

    mapped, version = operator.raw_operator, container.target_opset
    landmarks = mapped.components_
    Y = np.asarray(landmarks.toarray() if hasattr(landmarks, "toarray") else landmarks, np.float64)

    def op(name: str, *inputs: Any, **attributes: Any) -> Any:
        return getattr(ops, f"Onnx{name}")(*inputs, op_version=version, **attributes)

    def number(value: float) -> Any:
        return np.array([value], np.float64)

    X = op("Cast", operator.inputs[0], to=TensorProto.DOUBLE)
    squares = op("ReduceSumSquare", X, np.array([1], np.int64), keepdims=1)
    if mapped.kernel == "cosine":
        # A row of zeros has no direction: scikit-learn divides it by 1.
        lengths = op("Sqrt", op("Add", squares, _where_zero(op, squares)))
        X, Y = op("Div", X, lengths), Y / _lengths(Y)
    products = op("MatMul", X, Y.T)
    K = products
    if mapped.kernel == "poly":
        sums = op("Add", op("Mul", products, number(mapped.gamma)), number(mapped.coef0))
        K = op("Pow", sums, number(mapped.degree))
    if mapped.kernel == "rbf":
        ends = op("Add", squares, (Y * Y).sum(axis=1)[None])
        distances = op("Sub", ends, op("Mul", products, number(2)))
        K = op("Exp", op("Mul", op("Max", distances, number(0)), number(-mapped.gamma)))
    scores = op("MatMul", K, np.asarray(mapped.normalization_.T, np.float64))
    kind = (
        TensorProto.FLOAT
        if "Float" in type(operator.inputs[0].type).__name__
        else TensorProto.DOUBLE
    )
    op("Cast", scores, to=kind, output_names=operator.outputs[:1]).add_to(scope, container)


def _where_zero(op: Any, squares: Any) -> Any:
    from onnx import TensorProto

    return op("Cast", op("Equal", squares, np.zeros(1)), to=TensorProto.DOUBLE)


def _lengths(Y: Any) -> Any:
    lengths = np.linalg.norm(Y, axis=1, keepdims=True)
    return np.where(lengths == 0, 1.0, lengths)
