"""The network: all-MiniLM-L6-v2 reading query and text together, and a head that gives one logit.

    logit = w . tanh(W [h_cls; mean h] + c) + sum_l a_l * met_l + b
    met_l = sum_t g_lt max_s cos(P_l x_lt, P_l x_ls) / sum_t g_lt       t the query's wordpieces, s the text's
    g_lt  = softplus(v_l . h_t + i_l * idf(t) + u_l)

x_l are the word vectors, the hidden states of the middle layer and those of the last; h is the last. `met` is late interaction
inside the cross-encoder, with learned token weights: the encoder was trained to make such cosines mean something, so the head
starts from a ranking instead of from noise, and a rare word that both contain is not lost on the way up. idf is that of the
wordpieces in the training passages.

Source: Nogueira & Cho 2019 (cross-encoder), Khattab & Zaharia 2020 (MaxSim), Gao et al. 2021, COIL (exact matches kept).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

MIDDLE = 3
IDF = 6.0
"""What an idf is divided by before it enters a gate: about that of a word in one passage of four hundred."""


class PairNetwork(nn.Module):
    """Encoder and head. Inputs are (pairs, tokens) of ids, attention mask and segment ids; the result (pairs,) logits."""

    idf: torch.Tensor

    def __init__(
        self, encoder: nn.Module, vocabulary: int, width: int = 384, inner: int = 128, projected: int = 128
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.dense = nn.Linear(2 * width, inner)
        self.out = nn.Linear(inner, 1)
        self.meetings = nn.ModuleList(Meeting(width, projected, scale) for scale in (2.0, 3.0, 5.0))
        self.register_buffer("idf", torch.ones(vocabulary))
        nn.init.zeros_(self.out.weight)
        nn.init.constant_(self.out.bias, -5.0)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        levels = self.encoder(
            input_ids=ids, attention_mask=mask, token_type_ids=segments, output_hidden_states=True
        ).hidden_states
        return self.head(levels[MIDDLE].float(), levels[-1].float(), mask, segments, ids)

    def head(
        self, middle: torch.Tensor, last: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, ids: torch.Tensor
    ) -> torch.Tensor:
        """Logits from the hidden states; separators and padding (ids 0, 101 and 102) meet nothing."""
        live = mask.float().unsqueeze(-1)
        mean = (last * live).sum(1) / live.sum(1)
        logits: torch.Tensor = self.out(torch.tanh(self.dense(torch.cat((last[:, 0], mean), -1)))).squeeze(-1)
        words = mask * (ids != 101) * (ids != 102)
        asked, there = (words * (1 - segments)).float(), (words * segments).float()
        vectors = self.encoder.get_input_embeddings()(ids)
        rarity = self.idf[ids] / IDF
        for meeting, points in zip(self.meetings, (vectors, middle, last), strict=True):
            logits = logits + meeting(points, last, rarity, asked, there)
        return logits


class Meeting(nn.Module):
    """One level's late interaction: projection, gate and scale."""

    def __init__(self, width: int, projected: int, scale: float) -> None:
        super().__init__()
        self.project = nn.Linear(width, projected, bias=False)
        self.gate = nn.Linear(width, 1)
        self.rarity = nn.Parameter(torch.tensor(2.0))
        self.scale = nn.Parameter(torch.tensor(scale))
        nn.init.orthogonal_(self.project.weight)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, -1.0)

    def forward(
        self, points: torch.Tensor, last: torch.Tensor, rarity: torch.Tensor, asked: torch.Tensor, there: torch.Tensor
    ) -> torch.Tensor:
        """scale * met, shape (pairs,). `asked` and `there` are 1 where a wordpiece is the query's, or the text's."""
        points = functional.normalize(self.project(points), dim=-1)
        cosines = points @ points.transpose(1, 2) - 2.0 * (1 - there).unsqueeze(1)
        weights = functional.softplus(self.gate(last).squeeze(-1) + self.rarity * rarity) * asked
        met: torch.Tensor = (weights * cosines.amax(-1)).sum(-1) / weights.sum(-1).clamp(min=1e-6)
        return self.scale * met


def load_encoder(folder: str) -> nn.Module:
    """The MiniLM encoder of a folder, with eager attention (the fastest on two CPU cores) and no dropout."""
    from transformers import AutoModel

    return AutoModel.from_pretrained(
        folder,
        attn_implementation="eager",
        add_pooling_layer=False,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
