"""The network: all-MiniLM-L6-v2 reading query and text together, and a head that gives one logit.

    logit = w . tanh(W [h_cls; mean h] + c) + a * met + b
    met   = sum_t g_t max_s cos(P h_t, P h_s) / sum_t g_t      t the query's tokens, s the text's, g_t = softplus(v . h_t + u)

`met` is late interaction inside the cross-encoder, with learned token weights: the encoder was trained to make such cosines
mean something, so the head starts from a ranking instead of from noise.

Source: Nogueira & Cho 2019 (cross-encoder), Khattab & Zaharia 2020 (MaxSim), Gao et al. 2021, COIL (joint use).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class PairNetwork(nn.Module):
    """Encoder and head. Inputs are (pairs, tokens) of ids, attention mask and segment ids; the result (pairs,) logits."""

    def __init__(self, encoder: nn.Module, width: int = 384, inner: int = 128, projected: int = 128) -> None:
        super().__init__()
        self.encoder = encoder
        self.dense = nn.Linear(2 * width, inner)
        self.out = nn.Linear(inner, 1)
        self.project = nn.Linear(width, projected, bias=False)
        self.gate = nn.Linear(width, 1)
        self.scale = nn.Parameter(torch.tensor(8.0))
        nn.init.orthogonal_(self.project.weight)
        nn.init.zeros_(self.out.weight)
        nn.init.constant_(self.out.bias, -4.0)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
        return self.head(hidden.float(), mask, segments, ids)

    def head(self, hidden: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Logits from the last hidden states; separators and padding (ids 0, 101 and 102) meet nothing."""
        live = mask.float().unsqueeze(-1)
        mean = (hidden * live).sum(1) / live.sum(1)
        joint: torch.Tensor = self.out(torch.tanh(self.dense(torch.cat((hidden[:, 0], mean), -1)))).squeeze(-1)
        words = mask * (ids != 101) * (ids != 102)
        asked, there = (words * (1 - segments)).float(), (words * segments).float()
        points = functional.normalize(self.project(hidden), dim=-1)
        cosines = points @ points.transpose(1, 2) - 2.0 * (1 - there).unsqueeze(1)
        weights = functional.softplus(self.gate(hidden)).squeeze(-1) * asked
        met = (weights * cosines.amax(-1)).sum(-1) / weights.sum(-1).clamp(min=1e-6)
        return joint + self.scale * met


def load_encoder(folder: str) -> nn.Module:
    """The MiniLM encoder of a folder, with eager attention (the fastest on two CPU cores) and no dropout."""
    from transformers import AutoModel

    return AutoModel.from_pretrained(  # type: ignore[no-any-return]
        folder, attn_implementation="eager", add_pooling_layer=False, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
