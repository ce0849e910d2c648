"""PyTorch and transformers in the sizes of ogive-gpu-bench: a line of JSON for each value, "note: …" for what a reader must know.

bfloat16 throughout, as both are mostly run. Weights rotate through more memory than the L2 holds, as in ogive-gpu-bench.
"""
import argparse
import json
import time

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda:0")
parser.add_argument("--smoke", action="store_true")
args = parser.parse_args()

try:
    import torch
except ImportError:
    raise SystemExit("torch is not installed for this Python")
if args.device.startswith("cuda") and not torch.cuda.is_available():
    raise SystemExit("torch sees no GPU")
on_gpu = args.device.startswith("cuda")
device, dtype = torch.device(args.device), torch.bfloat16
print(f"note: torch {torch.__version__} on {torch.cuda.get_device_name(device) if on_gpu else 'the CPU'}")


def seconds(call, calls=1, runs=2 if args.smoke else 30, patience=0.25):
    """Seconds of each run of `call`, which does something `calls` times, by events on the device."""
    found, begin = [], None
    for run in range(3 + runs):
        if on_gpu:
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            marks[0].record()
            call()
            marks[1].record()
            torch.cuda.synchronize()
            taken = marks[0].elapsed_time(marks[1]) / 1e3
        else:
            start = time.perf_counter()
            call()
            taken = time.perf_counter() - start
        if run >= 3:
            begin = begin or time.perf_counter()
            found.append(taken / calls)
            if len(found) >= 3 and time.perf_counter() - begin > patience:
                break
    return found


def graphed(call):
    """The same call as a CUDA graph, so that launches are not what is measured."""
    if not on_gpu:
        return call
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def say(name, case, taken, bytes, operations, tokens=0):
    print(json.dumps(dict(name=name, case=case, seconds=taken, bytes=bytes, operations=operations, tokens=tokens)), flush=True)


def numbers(*shape):
    return torch.rand(*shape, device=device, dtype=dtype) - 0.5


@torch.inference_mode()
def operators():
    n = 1 << (16 if args.smoke else 30)
    a, b = torch.empty(n, device=device, dtype=torch.uint8), torch.empty(n, device=device, dtype=torch.uint8)
    say("torch copy", f"{n} bytes", seconds(lambda: b.copy_(a)), 2 * n, 0)
    del a, b
    for side in [64] if args.smoke else [4096, 8192, 16384]:
        x, w = numbers(side, side), numbers(side, side)
        say("torch matmul bf16", f"{side}³", seconds(lambda: x @ w.T), 6 * side**2, 2 * side**3)
    cols, inner = (256, 256) if args.smoke else (14336, 4096)
    weights = [numbers(cols, inner) for _ in range(1 if args.smoke else 5)]
    for rows in [1, 3] if args.smoke else [1, 2, 4, 8, 16, 64, 512, 2048]:
        x = numbers(rows, inner)
        call = graphed(lambda: [torch.nn.functional.linear(x, w) for w in weights])
        moved = 2 * (cols * inner + rows * (inner + cols))
        say("torch linear bf16", f"{rows} × {inner} → {cols}", seconds(call, len(weights)), moved, 2 * rows * cols * inner)
    heads, kv_heads, dim = 32, 8, 128
    for context in [40] if args.smoke else [512, 2048, 8192, 32768]:
        q, k, v = numbers(1, heads, 1, dim), numbers(1, kv_heads, context, dim), numbers(1, kv_heads, context, dim)
        call = graphed(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True))
        say("torch attention, decode", f"1 × {context} tokens", seconds(call), 4 * kv_heads * dim * context, 4 * heads * dim * context)


@torch.inference_mode()
def models():
    try:
        from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
    except ImportError:
        print("note: transformers is not installed for this Python")
        return
    shapes = {
        "llama-3.2-1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, head_dim=64, tie_word_embeddings=True),
        "llama-3.1-8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, head_dim=128, tie_word_embeddings=False),
    }
    if args.smoke:
        shapes = {"tiny": dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, head_dim=16, num_attention_heads=4, num_key_value_heads=2, vocab_size=512)}
    for name, sizes in shapes.items():
        config = LlamaConfig(**{**dict(num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, max_position_embeddings=32768), **sizes})
        torch.set_default_dtype(dtype)
        with torch.device(device):
            model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
        # As ogive-gpu-bench counts (work.rs): the head is for rows whose logits are wanted, of a prompt the last one.
        head = config.vocab_size * config.hidden_size
        elements = sum(p.numel() for p in model.parameters()) - (0 if config.tie_word_embeddings else head)
        # Bytes of a cached token, and operations of attention for one that is seen.
        cached = 4 * config.num_hidden_layers * config.num_key_value_heads * sizes["head_dim"]
        seen = 4 * config.num_hidden_layers * config.num_attention_heads * sizes["head_dim"]
        for tokens in [16] if args.smoke else [512, 2048, 8192, 32768]:
            ids = torch.randint(0, 500, (1, tokens), device=device)
            taken = seconds(lambda: model(ids, logits_to_keep=1), runs=2 if args.smoke else 10)
            operations = 2 * (elements - head) * tokens + 2 * head + seen * tokens * (tokens + 1) // 2
            say(f"transformers {name} bf16, prefill", f"{tokens} tokens", taken, 2 * elements + cached * tokens, operations, tokens)
        for count, past in [(1, 8)] if args.smoke else [(1, 511), (1, 2047), (1, 8191), (1, 32767 - 64), (16, 511), (64, 511), (256, 511)]:
            cache = StaticCache(config=config, max_cache_len=past + 65)
            model(torch.randint(0, 500, (count, past), device=device), past_key_values=cache, use_cache=True, logits_to_keep=1)
            one, at = torch.randint(0, 500, (count, 1), device=device), torch.tensor([past], device=device)
            step = lambda: model(one, past_key_values=cache, use_cache=True, cache_position=at)
            taken = seconds(step, runs=2 if args.smoke else 20)
            moved, operations = 2 * elements + count * (past + 1) * cached, count * (2 * elements + (past + 1) * seen)
            say(f"transformers {name} bf16, decode", f"{count} × 1 after {past} tokens", taken, moved, operations, count)
            del cache
        del model


for part in (operators, models):
    try:
        part()
    except Exception as error:  # what else is on the machine may be of any version
        print(f"note: {part.__name__} with torch failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
