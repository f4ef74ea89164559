#!/bin/sh
# Measures the CUDA backend on a machine with a GPU: kernels against their references, identity, decode and prefill of
# three shapes, free and under a JSON Schema, beside transformers. All results go to one folder.
#
#     benchmarks/gpu/run.sh EXECUTABLES TOKENIZER OUT [SHAPE...]
#
# EXECUTABLES has formwork and formwork-engine-core of a release build, and, where they are to run, the kernels' tests as
# kernel-tests and the example kernel_rates. TOKENIZER is a folder with a tokenizer.json of at most 151,936 tokens.
# Needs python3 with torch, transformers and safetensors for the models and the peer.
set -u
executables=$1
tokenizer=$2
out=$3
shift 3
shapes=${*:-0.5b 1.7b 8b}
here=$(dirname "$0")
models=${MODELS:-/tmp/formwork-gpu-models}
mkdir -p "$out"
nvidia-smi > "$out/machine.txt" 2>&1

if [ -x "$executables/kernel-tests" ]; then
    CUDA_DEVICE_TESTS=1 "$executables/kernel-tests" --test-threads=1 > "$out/kernel-tests.txt" 2>&1
    echo "kernel tests: exit $?"
    if command -v compute-sanitizer > /dev/null && [ -n "${SANITIZER:-}" ]; then
        CUDA_DEVICE_TESTS=1 compute-sanitizer "$executables/kernel-tests" --test-threads=1 > "$out/compute-sanitizer.txt" 2>&1
        echo "compute-sanitizer: exit $?"
    fi
fi
if [ -x "$executables/kernel_rates" ]; then
    "$executables/kernel_rates" --device 0 > "$out/kernel-rates.txt" 2>&1
fi

for shape in $shapes; do
    python3 "$here/make_models.py" "$tokenizer" "$models" "$shape" || exit 1
    port=8123
    "$executables/formwork" serve --model "$models/$shape" --device cuda --port $port --no-ui \
        --max-num-seqs 256 --max-model-len 4096 --max-num-batched-tokens 4096 > "$out/serve-$shape.txt" 2>&1 &
    server=$!
    for _ in $(seq 600); do
        curl -sf "http://127.0.0.1:$port/health" > /dev/null && break
        kill -0 $server 2> /dev/null || break
        sleep 0.2
    done
    for batch in ${BATCHES:-1 8 32 128 256}; do
        for kind in free schema; do
            "$executables/formwork" bench serve --port $port --num-prompts $((batch * 3)) --num-warmups "$batch" \
                --max-concurrency "$batch" --random-input-len 32 --random-output-len 128 --temperature 0 \
                $([ $kind = free ] && echo "--ignore-eos" || echo "--constrained-share 1 --constraint-kinds json") \
                > "$out/bench-$shape-$kind-$batch.txt" 2>&1
            echo "$shape $kind $batch: $(grep -h 'Output token throughput' "$out/bench-$shape-$kind-$batch.txt")"
        done
    done
    curl -s "http://127.0.0.1:$port/metrics" > "$out/metrics-$shape.txt"
    kill $server
    wait $server
    if [ -z "${NO_PEER:-}" ]; then
        python3 "$here/peer.py" "$models/$shape" ${BATCHES:-1 8 32 128 256} > "$out/peer-$shape.jsonl" 2> "$out/peer-$shape.err"
    fi
done
