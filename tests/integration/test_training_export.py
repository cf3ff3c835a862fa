"""The shipped form of the network: ONNX with 8-bit weights answers as the network does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    import torch

    from training.network import PairNetwork

pytestmark = pytest.mark.thorough  # what ships is in `make test`; how it was made needs torch and transformers


@pytest.fixture(scope="module")
def network() -> PairNetwork:
    import torch
    from transformers import BertConfig, BertModel

    from training.network import PairNetwork

    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=600,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    found = PairNetwork(
        BertModel(config, add_pooling_layer=False), vocabulary=600, width=32, inner=16, projected=16
    ).eval()
    torch.nn.init.normal_(found.out.weight, std=0.5)
    with torch.no_grad():
        for value in found.parameters():  # the exporter writes equal ones, as all norms are at first, only once
            value.add_(0.01 * torch.randn_like(value))
    return found


@pytest.fixture(scope="module")
def exported(network: PairNetwork, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from training.export import export_single, quantise

    folder = tmp_path_factory.mktemp("onnx")
    export_single(network, folder / "single.onnx")
    quantise(folder / "single.onnx", folder / "model.onnx")
    return {"single": folder / "single.onnx", "quantised": folder / "model.onnx"}


def pairs(rows: int, tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, mask and segments of random pairs: a query of three, separators, and padding of different length."""
    import torch

    torch.manual_seed(seed)
    ids = torch.randint(200, 600, (rows, tokens))
    ids[:, 0], ids[:, 4] = 101, 102
    lengths = torch.randint(7, tokens + 1, (rows,))
    mask = (torch.arange(tokens) < lengths[:, None]).long()
    ids[torch.arange(rows), lengths - 1] = 102
    segments = (torch.arange(tokens) > 4).long().expand(rows, tokens) * mask
    return ids * mask, mask, segments


def answer(path: Path, fed: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = ("input_ids", "attention_mask", "token_type_ids")
    return np.asarray(session.run(["logits"], {name: value.numpy() for name, value in zip(names, fed, strict=True)})[0])


@pytest.mark.parametrize(("rows", "tokens"), [(1, 8), (5, 23), (16, 40)])
def test_single_precision_answers_as_the_network_for_any_shape(
    network: PairNetwork, exported: dict[str, Path], rows: int, tokens: int
) -> None:
    import torch

    fed = pairs(rows, tokens, seed=rows)
    with torch.no_grad():
        expected = network(*fed).numpy()
    np.testing.assert_allclose(answer(exported["single"], fed), expected, atol=1e-4)


def test_eight_bits_keep_the_order_and_are_near(network: PairNetwork, exported: dict[str, Path]) -> None:
    import torch

    fed = pairs(64, 30, seed=9)
    with torch.no_grad():
        expected = network(*fed).numpy()
    found = answer(exported["quantised"], fed)
    assert np.abs(found - expected).mean() < 0.1 * expected.std()
    assert np.corrcoef(found, expected)[0, 1] > 0.99


def test_every_matrix_of_weights_and_the_word_vectors_are_in_eight_bits(exported: dict[str, Path]) -> None:
    import onnx

    large = [
        tensor for tensor in onnx.load(str(exported["quantised"])).graph.initializer if np.prod(tensor.dims) >= 32 * 32
    ]
    kinds = {tensor.name: tensor.data_type for tensor in large}
    positions = [name for name, kind in kinds.items() if kind != onnx.TensorProto.INT8]
    assert kinds["words_8bit"] == onnx.TensorProto.INT8 and len(kinds) > 12
    assert all("position" in name for name in positions)


def test_padding_changes_no_answer(network: PairNetwork) -> None:
    import torch

    ids, mask, segments = pairs(6, 20, seed=4)
    wider = [torch.nn.functional.pad(tensor, (0, 9)) for tensor in (ids, mask, segments)]
    with torch.no_grad():
        torch.testing.assert_close(network(*wider), network(ids, mask, segments), atol=1e-5, rtol=0)


def test_what_ships_can_be_trained_on(network: PairNetwork, exported: dict[str, Path]) -> None:
    import torch

    from training.dequantise import weights_of

    taken = weights_of(exported["quantised"], network.state_dict())
    for name, value in network.state_dict().items():
        step = value.abs().amax() / 127 if value.ndim == 2 else 0.0
        assert torch.allclose(taken[name], value, rtol=0, atol=float(step) / 2 + 1e-6), name


def test_weights_that_are_not_in_the_file_are_named(network: PairNetwork, exported: dict[str, Path]) -> None:
    import torch

    from training.dequantise import weights_of

    with pytest.raises(ValueError, match=r"another shape: idf, one\.more$"):
        weights_of(exported["quantised"], {"out.bias": torch.ones(1), "idf": torch.ones(3), "one.more": torch.ones(1)})
