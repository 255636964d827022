"""Cases for the forms of attention in com.microsoft."""

import numpy as np

from one_node import Case, normal, rng

F16, F32, I8, U8, I32 = np.float16, np.float32, np.int8, np.uint8, np.int32
# Halves are computed in other orders.
LOOSE = {"rtol": 2e-2, "atol": 2e-2}


def masks(random, batch, queries, keys):
    """The forms that a mask can have."""
    return {
        "none": None,
        "lengths": np.array([keys - 1, keys - 2], I32)[:batch],
        "ends_starts": np.array([keys - 1, keys, 1, 0], I32),
        "keys": random.integers(0, 2, (batch, keys)).astype(I32),
        "pairs": random.integers(0, 2, (batch, queries, keys)).astype(I32),
    }


def projected_cases():
    random = rng("attention")
    batch, positions, depth, heads = 2, 5, 6, 2
    x, w, b = normal(random, batch, positions, depth), normal(random, depth, 24), normal(random, 24)
    past = normal(random, 2, batch, heads, 3, 4)
    for name, mask in masks(random, batch, positions, positions).items():
        for causal in (0, 1):
            yield Case(
                f"attention_{name}_{causal}",
                "Attention",
                [x, w, b, mask],
                {"num_heads": heads, "unidirectional": causal},
            )
    for name, mask in masks(random, batch, positions, positions + 3).items():
        for causal in (0, 1):
            yield Case(
                f"attention_past_{name}_{causal}",
                "Attention",
                [x, w, b, mask, past],
                {"num_heads": heads, "unidirectional": causal},
                2,
            )
    yield Case("attention_present", "Attention", [x, w, b], {"num_heads": heads}, 2)
    yield Case("attention_dummy_mask", "Attention", [x, w, b, np.ones((batch, 1), I32)], {"num_heads": heads})
    yield Case("attention_scale", "Attention", [x, w, b], {"num_heads": heads, "scale": 0.3})
    yield Case(
        "attention_filter",
        "Attention",
        [x, w, b, masks(random, 2, 5, 5)["keys"]],
        {"num_heads": heads, "mask_filter_value": -2.0},
    )
    for shape in ((2, 2, 5, 5), (1, 2, 5, 5), (2, 1, 5, 5), (1, 1, 5, 5)):
        name = "attention_bias_" + "".join(map(str, shape[:2]))
        yield Case(name, "Attention", [x, w, b, None, None, normal(random, *shape)], {"num_heads": heads})
    sizes = {"num_heads": heads, "qkv_hidden_sizes": [8, 8, 4]}
    yield Case("attention_sizes", "Attention", [x, w[:, :20].copy(), b[:20], None], sizes)
    bytes_x, bytes_w = random.integers(0, 256, (2, 5, 6)).astype(U8), random.integers(-64, 64, (6, 24)).astype(I8)
    scale, zero = np.array(0.02, F32), np.array(120, U8)
    columns = (random.random(24) / 50).astype(F32)
    zeros = random.integers(-9, 9, 24).astype(I8)
    for name, mask in masks(random, batch, positions, positions).items():
        yield Case(
            f"qattention_{name}",
            "QAttention",
            [bytes_x, bytes_w, b, scale, scale, mask, zero, np.array(3, I8)],
            {"num_heads": heads, "unidirectional": 1},
        )
    yield Case(
        "qattention_columns",
        "QAttention",
        [bytes_x, bytes_w, b, scale, columns, None, zero, zeros],
        {"num_heads": heads},
    )
    yield Case(
        "qattention_past",
        "QAttention",
        [bytes_x, bytes_w, b, scale, scale, None, zero, None, past],
        {"num_heads": heads},
        2,
    )


def multi_head_cases():
    random = rng("multi head")
    batch, queries, keys, heads = 2, 4, 4, 2
    q, k, v = normal(random, batch, queries, 8), normal(random, batch, keys, 8), normal(random, batch, keys, 8)
    bias = normal(random, 24)
    op, plain = "MultiHeadAttention", {"num_heads": heads}
    yield Case("mha", op, [q, k, v], plain)
    yield Case("mha_bias", op, [q, k, v, bias], plain)
    yield Case("mha_causal", op, [q, k, v, bias], {**plain, "unidirectional": 1})
    yield Case("mha_present", op, [q, k, v, bias], plain, 3)
    for name, mask in masks(random, batch, queries, keys).items():
        if name not in ("none", "ends_starts"):
            yield Case(f"mha_mask_{name}", op, [q, k, v, bias, mask], plain)
            yield Case(f"mha_mask_{name}_causal", op, [q, k, v, bias, mask], {**plain, "unidirectional": 1})
    for shape in ((2, 2, 4, 4), (1, 1, 4, 4), (2, 1, 4, 4)):
        yield Case(
            "mha_score_bias_" + "".join(map(str, shape[:2])), op, [q, k, v, None, None, normal(random, *shape)], plain
        )
    past_key, past_value = normal(random, 2, 2, 3, 4), normal(random, 2, 2, 3, 4)
    yield Case("mha_past", op, [q, k, v, bias, None, None, past_key, past_value], plain, 3)
    yield Case(
        "mha_past_causal", op, [q, k, v, None, None, None, past_key, past_value], {**plain, "unidirectional": 1}, 3
    )
    mask = random.integers(0, 2, (2, 7)).astype(I32)
    yield Case("mha_past_mask", op, [q, k, v, None, mask, None, past_key, past_value], plain, 3)
    wide = normal(random, batch, keys, 12)
    yield Case("mha_wide_values", op, [q, k, wide], plain)
    longer = normal(random, 2, 6, 8), normal(random, 2, 6, 8)
    yield Case("mha_cross", op, [q, *longer, bias], plain)
    yield Case("mha_cross_split", op, [q, normal(random, 2, 2, 6, 4), normal(random, 2, 2, 6, 4), bias], plain)
    yield Case("mha_scale", op, [q, k, v], {**plain, "scale": 0.25})


def rotary(random, positions, half):
    angles = random.random((positions, half)) * 6
    return np.cos(angles).astype(F32), np.sin(angles).astype(F32)


def rotary_cases():
    random = rng("rotary")
    cos, sin = rotary(random, 10, 4)
    x = normal(random, 2, 3, 16)
    first, each = np.array([2]), np.array([[0, 5, 9], [1, 1, 4]])
    op = "RotaryEmbedding"
    for interleaved in (0, 1):
        common = {"interleaved": interleaved}
        yield Case(f"rotary_{interleaved}", op, [x, first, cos, sin], common)
        yield Case(f"rotary_each_{interleaved}", op, [x, each, cos, sin], common)
        yield Case(f"rotary_split_{interleaved}", op, [normal(random, 2, 2, 3, 8), each, cos, sin], common)
        part = {**common, "num_heads": 1, "rotary_embedding_dim": 8}
        yield Case(f"rotary_part_{interleaved}", op, [x, each, cos, sin], part)
    half = [array.astype(F16) for array in (cos, sin)]
    yield Case("rotary_float16", op, [x.astype(F16), each, *half], **LOOSE)


def grouped_cases():
    random = rng("grouped")
    heads, kv_heads, head = 4, 2, 16
    op, plain = "GroupQueryAttention", {"num_heads": heads, "kv_num_heads": kv_heads}
    cos, sin = rotary(random, 12, head // 2)

    def number(value):
        return np.array(value, I32)

    def parts(batch, positions):
        return [normal(random, batch, positions, width) for width in (heads * head, kv_heads * head, kv_heads * head)]

    def past(batch, positions):
        return [normal(random, batch, kv_heads, positions, head) for _ in range(2)]

    prompt = parts(2, 5)
    lengths = [np.array([4, 4], I32), number(5)]
    yield Case("gqa_prompt", op, [*prompt, None, None, *lengths], plain, 3)
    yield Case("gqa_prompt_short", op, [*prompt, None, None, np.array([4, 2], I32), number(5)], plain, 3)
    yield Case("gqa_prompt_rotary", op, [*prompt, None, None, *lengths, cos, sin], {**plain, "do_rotary": 1}, 3)
    yield Case(
        "gqa_prompt_interleaved",
        op,
        [*prompt, None, None, *lengths, cos, sin],
        {**plain, "do_rotary": 1, "rotary_interleaved": 1},
        3,
    )
    yield Case("gqa_prompt_window", op, [*prompt, None, None, *lengths], {**plain, "local_window_size": 2}, 3)
    yield Case("gqa_prompt_softcap", op, [*prompt, None, None, *lengths], {**plain, "softcap": 1.5}, 3)
    yield Case("gqa_prompt_smooth", op, [*prompt, None, None, *lengths], {**plain, "smooth_softmax": 1}, 3)
    sinks = normal(random, heads)
    yield Case("gqa_prompt_sinks", op, [*prompt, None, None, *lengths, None, None, None, None, sinks], plain, 3)
    yield Case("gqa_prompt_scale", op, [*prompt, None, None, *lengths], {**plain, "scale": 0.1}, 3)
    bias = normal(random, 2, heads, 5, 5)
    yield Case("gqa_prompt_bias", op, [*prompt, None, None, *lengths, None, None, None, bias], plain, 3)
    packed = normal(random, 2, 5, (heads + 2 * kv_heads) * head)
    yield Case("gqa_packed", op, [packed, None, None, None, None, *lengths], plain, 3)
    yield Case(
        "gqa_packed_rotary", op, [packed, None, None, None, None, *lengths, cos, sin], {**plain, "do_rotary": 1}, 3
    )
    token = parts(2, 1)
    yield Case("gqa_token", op, [*token, *past(2, 6), np.array([6, 6], I32), number(7)], plain, 3)
    yield Case("gqa_token_short", op, [*token, *past(2, 6), np.array([6, 3], I32), number(7)], plain, 3)
    yield Case("gqa_token_cache", op, [*token, *past(2, 10), np.array([6, 3], I32), number(7)], plain, 3)
    yield Case(
        "gqa_token_rotary",
        op,
        [*token, *past(2, 6), np.array([6, 3], I32), number(7), cos, sin],
        {**plain, "do_rotary": 1},
        3,
    )
    yield Case(
        "gqa_token_positions",
        op,
        [*token, *past(2, 6), np.array([6, 6], I32), number(7), cos, sin, np.array([[8], [2]])],
        {**plain, "do_rotary": 1},
        3,
    )
    yield Case(
        "gqa_token_window",
        op,
        [*token, *past(2, 6), np.array([6, 6], I32), number(7)],
        {**plain, "local_window_size": 3},
        3,
    )
    more = parts(1, 3)
    yield Case(
        "gqa_continued", op, [*more, *past(1, 4), np.array([6], I32), number(7), cos, sin], {**plain, "do_rotary": 1}, 3
    )

    def half(arrays):
        return [array.astype(F16) for array in arrays]

    yield Case(
        "gqa_float16", op, [*half(token), *half(past(2, 6)), np.array([6, 6], I32), number(7)], plain, 3, **LOOSE
    )


def attention_cases():
    for kind in (projected_cases, multi_head_cases, rotary_cases, grouped_cases):
        yield from kind()
