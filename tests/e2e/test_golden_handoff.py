"""The reference logits of each golden family, after a handoff: the second token's distribution is computed by the decode worker from pages that
the prefill worker has pushed."""

import json
import struct

import numpy as np
import pytest

from cluster import GOLDEN, Cluster

FAMILIES = ["llama", "llama3-rope-tied", "llama-yarn", "llama-bias", "qwen2", "qwen3", "mistral-swa"]
ARGS = ["--kv.pool-mib", "16", "--decode.local-prefill-tokens", "0", "--decode.local-prefill-ratio", "0", "--kv.dtype", "f32"]


def read_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    types = {"F32": np.float32, "I64": np.int64, "I32": np.int32}
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + size + begin:8 + size + end], types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_after_a_handoff_equal_the_reference(family):
    reference = read_safetensors(GOLDEN / family / "reference.safetensors")
    ids = [int(i) for i in reference["input_ids"]]
    with Cluster(GOLDEN / family, worker_args=ARGS, router_args=["--route.local-prompt-tokens", "0"]) as cluster:
        for length in (17, 48, 64, 99):
            forced = {"allowed_token_ids": [ids[length]], "max_tokens": 2, "ignore_eos": True, "temperature": 0}
            reply = cluster.post("/v1/completions", {"prompt": ids[:length], "logprobs": 5, "return_token_ids": True,
                                                     "return_tokens_as_token_ids": True, **forced})
            logprobs = reply["choices"][0]["logprobs"]
            for i, row in enumerate((length - 1, length)):  # P's row, then D's row
                logits = reference["logits"][row].astype(np.float64)
                want = logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()
                for token, got in logprobs["top_logprobs"][i].items():
                    assert abs(got - want[int(token.removeprefix("token_id:"))]) < 2e-3, (family, length, i, token)
        assert cluster.handoffs() == 4
