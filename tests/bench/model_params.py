#!/usr/bin/env python3
"""Parameter tables (HF names, shapes) of well-known open models, generated from their
config facts, so that realistic planning workloads can be built without any weights.
usage: model_params.py [model] [--json]     (no model: print the totals of all)
Fields per tensor: name, shape.  dtype is given by the user (bf16 weights, fp32 master/m/v).
"""
import json, math, sys

def dense_llama(h, L, nh, nkv, ff, V, tie=False, head_dim=None, qkv_bias=False, qk_norm=False):
    hd = head_dim or h // nh
    t = [("model.embed_tokens.weight", (V, h))]
    for i in range(L):
        p = f"model.layers.{i}."
        t += [(p+"self_attn.q_proj.weight", (nh*hd, h)), (p+"self_attn.k_proj.weight", (nkv*hd, h)),
              (p+"self_attn.v_proj.weight", (nkv*hd, h)), (p+"self_attn.o_proj.weight", (h, nh*hd))]
        if qkv_bias:
            t += [(p+"self_attn.q_proj.bias", (nh*hd,)), (p+"self_attn.k_proj.bias", (nkv*hd,)), (p+"self_attn.v_proj.bias", (nkv*hd,))]
        if qk_norm:
            t += [(p+"self_attn.q_norm.weight", (hd,)), (p+"self_attn.k_norm.weight", (hd,))]
        t += [(p+"mlp.gate_proj.weight", (ff, h)), (p+"mlp.up_proj.weight", (ff, h)), (p+"mlp.down_proj.weight", (h, ff)),
              (p+"input_layernorm.weight", (h,)), (p+"post_attention_layernorm.weight", (h,))]
    t.append(("model.norm.weight", (h,)))
    if not tie: t.append(("lm_head.weight", (V, h)))
    return t

def mixtral(h, L, nh, nkv, ff, V, E):
    hd = h // nh
    t = [("model.embed_tokens.weight", (V, h))]
    for i in range(L):
        p = f"model.layers.{i}."
        t += [(p+"self_attn.q_proj.weight", (nh*hd, h)), (p+"self_attn.k_proj.weight", (nkv*hd, h)),
              (p+"self_attn.v_proj.weight", (nkv*hd, h)), (p+"self_attn.o_proj.weight", (h, nh*hd)),
              (p+"block_sparse_moe.gate.weight", (E, h))]
        for e in range(E):
            q = p+f"block_sparse_moe.experts.{e}."
            t += [(q+"w1.weight", (ff, h)), (q+"w2.weight", (h, ff)), (q+"w3.weight", (ff, h))]
        t += [(p+"input_layernorm.weight", (h,)), (p+"post_attention_layernorm.weight", (h,))]
    return t + [("model.norm.weight", (h,)), ("lm_head.weight", (V, h))]

def qwen3_moe(h, L, nh, nkv, hd, mff, V, E):
    t = [("model.embed_tokens.weight", (V, h))]
    for i in range(L):
        p = f"model.layers.{i}."
        t += [(p+"self_attn.q_proj.weight", (nh*hd, h)), (p+"self_attn.k_proj.weight", (nkv*hd, h)),
              (p+"self_attn.v_proj.weight", (nkv*hd, h)), (p+"self_attn.o_proj.weight", (h, nh*hd)),
              (p+"self_attn.q_norm.weight", (hd,)), (p+"self_attn.k_norm.weight", (hd,)), (p+"mlp.gate.weight", (E, h))]
        for e in range(E):
            q = p+f"mlp.experts.{e}."
            t += [(q+"gate_proj.weight", (mff, h)), (q+"up_proj.weight", (mff, h)), (q+"down_proj.weight", (h, mff))]
        t += [(p+"input_layernorm.weight", (h,)), (p+"post_attention_layernorm.weight", (h,))]
    return t + [("model.norm.weight", (h,)), ("lm_head.weight", (V, h))]

def deepseek_v3(h=7168, L=61, nh=128, V=129280, q_lora=1536, kv_lora=512, nope=128, rope=64, vd=128,
                ff=18432, mff=2048, E=256, shared=1, dense=3, corr_bias=True, mtp=0):
    t = [("model.embed_tokens.weight", (V, h))]
    def layer(i, moe):
        p = f"model.layers.{i}."
        a = []
        if q_lora:
            a += [(p+"self_attn.q_a_proj.weight", (q_lora, h)), (p+"self_attn.q_a_layernorm.weight", (q_lora,)),
                  (p+"self_attn.q_b_proj.weight", (nh*(nope+rope), q_lora))]
        else:
            a += [(p+"self_attn.q_proj.weight", (nh*(nope+rope), h))]
        a += [(p+"self_attn.kv_a_proj_with_mqa.weight", (kv_lora+rope, h)), (p+"self_attn.kv_a_layernorm.weight", (kv_lora,)),
              (p+"self_attn.kv_b_proj.weight", (nh*(nope+vd), kv_lora)), (p+"self_attn.o_proj.weight", (h, nh*vd))]
        if not moe:
            a += [(p+"mlp.gate_proj.weight", (ff, h)), (p+"mlp.up_proj.weight", (ff, h)), (p+"mlp.down_proj.weight", (h, ff))]
        else:
            a += [(p+"mlp.gate.weight", (E, h))]
            if corr_bias: a += [(p+"mlp.gate.e_score_correction_bias", (E,))]
            for e in range(E):
                q = p+f"mlp.experts.{e}."
                a += [(q+"gate_proj.weight", (mff, h)), (q+"up_proj.weight", (mff, h)), (q+"down_proj.weight", (h, mff))]
            q = p+"mlp.shared_experts."
            a += [(q+"gate_proj.weight", (mff*shared, h)), (q+"up_proj.weight", (mff*shared, h)), (q+"down_proj.weight", (h, mff*shared))]
        return a + [(p+"input_layernorm.weight", (h,)), (p+"post_attention_layernorm.weight", (h,))]
    for i in range(L): t += layer(i, i >= dense)
    for m in range(mtp):
        i = L+m; p = f"model.layers.{i}."
        t += layer(i, True) + [(p+"enorm.weight",(h,)),(p+"hnorm.weight",(h,)),(p+"eh_proj.weight",(h,2*h)),
              (p+"shared_head.norm.weight",(h,)),(p+"embed_tokens.weight",(V,h)),(p+"shared_head.head.weight",(V,h))]
    return t + [("model.norm.weight", (h,)), ("lm_head.weight", (V, h))]

MODELS = {
 "llama3-8b":    lambda: dense_llama(4096, 32, 32, 8, 14336, 128256),
 "llama3-70b":   lambda: dense_llama(8192, 80, 64, 8, 28672, 128256),
 "llama3-405b":  lambda: dense_llama(16384, 126, 128, 8, 53248, 128256),
 "mlperf-1t":    lambda: dense_llama(25872, 128, 192, 32, 98304, 128256),
 "llama3.2-1b":  lambda: dense_llama(2048, 16, 32, 8, 8192, 128256, tie=True, head_dim=64),
 "llama3.2-3b":  lambda: dense_llama(3072, 28, 24, 8, 8192, 128256, tie=True, head_dim=128),
 "qwen3-32b":    lambda: dense_llama(5120, 64, 64, 8, 25600, 151936, head_dim=128, qk_norm=True),
 "qwen3-235b-a22b": lambda: qwen3_moe(4096, 94, 64, 4, 128, 1536, 151936, 128),
 "mixtral-8x7b": lambda: mixtral(4096, 32, 32, 8, 14336, 32000, 8),
 "mixtral-8x22b":lambda: mixtral(6144, 56, 48, 8, 16384, 32768, 8),
 "deepseek-v2-236b": lambda: deepseek_v3(5120, 60, 128, 102400, 1536, 512, 128, 64, 128, 12288, 1536, 160, 2, 1, corr_bias=False),
 "deepseek-v3":  lambda: deepseek_v3(),
 "deepseek-v3+mtp": lambda: deepseek_v3(mtp=1),
 "kimi-k2":      lambda: deepseek_v3(7168, 61, 64, 163840, 1536, 512, 128, 64, 128, 18432, 2048, 384, 1, 1),
}

def main():
    a = [x for x in sys.argv[1:] if not x.startswith("-")]
    for name in (a or MODELS):
        t = MODELS[name]()
        n = sum(math.prod(s) for _, s in t)
        if "--json" in sys.argv:
            print(json.dumps([{"name": k, "shape": list(s)} for k, s in t]))
        elif a:
            for k, s in t: print(k, *s)
        else:
            print(f"{name:18s} tensors={len(t):7d} params={n:16,d} bf16={2*n/2**30:9.1f} GiB  MLPerf(14B/param)={14*n/2**30:9.1f} GiB  mixed-Adam(bf16+fp32 master,m,v)={14*n/2**30/1024:6.2f} TiB  tensors with optimizer(x4)={4*len(t)}")


if __name__ == "__main__":
    main()
