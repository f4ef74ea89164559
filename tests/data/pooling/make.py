#!/usr/bin/env python3
"""Writes the checkpoints of this folder, with what sentence-transformers and transformers compute on them.

usage: make.py [NAME...]
needs: torch 2.15, transformers 5.24, sentence-transformers 6.2 or later (CPU)

Each NAME is a folder as the Hub has it: config.json, model.safetensors (random weights, rounded to half
precision), tokenizer.json and, of embedding models, the files of sentence-transformers. expected.json beside
them has of an embedding model `texts` and their `embeddings`, and of a reranker `query`, `documents` and their
`scores`; all computed in float32.
"""
import json
import pathlib
import shutil
import sys

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification,
                          BertConfig, NomicBertConfig, PreTrainedTokenizerFast, Qwen3Config,
                          XLMRobertaConfig)

HERE = pathlib.Path(__file__).parent
TEXTS = [
    "A cat sits on the mat.",
    "a dog runs!",
    "Where is the Zürich train station? It is near the river, behind the old market hall.",
    "x",
]
QUERY = "where is the train station"
DOCUMENTS = ["It is near the river.", "A cat sits on the mat.", "the train station is old", "x"]
WORDS = "a cat sit ##s on the mat dog run where is train station it near river behind old market hall".split()
LETTERS = "abcdefghijklmnopqrstuvwxyzü0123456789"
MARKS = ".,?!'-"

SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)


def word_piece(lowercase=True):
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *MARKS, *LETTERS,
             *("##" + letter for letter in LETTERS), *(w for w in WORDS if len(w) > 1)]
    ids = {token: i for i, token in enumerate(dict.fromkeys(vocab))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    # As most models have it: accents go with the case.
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])])
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", model_max_length=64,
        # Without it the types of tokens would be lost.
        model_input_names=["input_ids", "token_type_ids", "attention_mask"])


def unigram():
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(c, -4.0 - i / 50) for i, c in enumerate(LETTERS + LETTERS[:26].upper() + MARKS)]
    pieces += [("▁" + w, -3.0 - i / 10) for i, w in enumerate(w for w in WORDS if w[0] != "#")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>",
        sep_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=60)


def byte_level(ends_text):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(letters)}
    merges = []
    for left, right in [("t", "h"), ("th", "e"), ("Ġ", "the"), ("y", "e"), ("ye", "s"), ("n", "o"), ("a", "t")]:
        merges.append((left, right))
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    end = "<|endoftext|>"
    tokenizer.add_special_tokens([end])
    if ends_text:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", pair=f"$A {end} $B {end}",
            special_tokens=[(end, tokenizer.token_to_id(end))])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=end, eos_token=end,
                                   model_max_length=256)


def bert(tokenizer, **more):
    return BertConfig(**SMALL, vocab_size=len(tokenizer), max_position_embeddings=64, pad_token_id=0,
                      **more)


def qwen3(tokenizer, **more):
    return Qwen3Config(**{**SMALL, "num_attention_heads": 4}, num_key_value_heads=2, head_dim=16,
                       vocab_size=len(tokenizer), max_position_embeddings=256, eos_token_id=None,
                       bos_token_id=None, tie_word_embeddings=True, **more)


def nomic(tokenizer):
    return NomicBertConfig(**SMALL, vocab_size=len(tokenizer), max_position_embeddings=128)


def xlm_roberta(tokenizer, **more):
    return XLMRobertaConfig(**SMALL, vocab_size=len(tokenizer), max_position_embeddings=62,
                            type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                            layer_norm_eps=1e-5, **more)


def random_weights(model, name):
    """Weights that half precision holds, large enough that nothing drowns in a tolerance."""
    torch.manual_seed(sum(map(ord, name)))
    model = model.float().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1:
                parameter.add_(noise * 0.2)
            elif "embed" in parameter_name:
                parameter.copy_(noise * 0.7)
            else:
                parameter.copy_(noise * 1.4 / parameter.shape[-1] ** 0.5)
            parameter.copy_(parameter.half().float())
    return model


def write(folder, model, tokenizer):
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for name in ["special_tokens_map.json", "generation_config.json"]:
        (folder / name).unlink(missing_ok=True)


def write_modules(folder, pooling, normalize, max_seq_length):
    """The files that say how hidden states are pooled, as the Hub's models have them."""
    width = SMALL["hidden_size"]
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")] + [("2_Normalize", "Normalize")] * normalize
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate(kinds)]
    dump(folder / "modules.json", modules)
    modes = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    (folder / "1_Pooling").mkdir()
    dump(folder / "1_Pooling/config.json",
         {"word_embedding_dimension": width, **{f"pooling_mode_{mode}": mode == pooling for mode in modes}})
    dump(folder / "sentence_bert_config.json", {"max_seq_length": max_seq_length, "do_lower_case": False})


def dump(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def embedding_model(name, config, tokenizer, pooling, normalize=True, max_seq_length=64):
    folder = HERE / name
    write(folder, random_weights(AutoModel.from_config(config), name), tokenizer)
    write_modules(folder, pooling, normalize, max_seq_length)
    if name == "qwen3_embedding":
        # As on the Hub: the class is that of a model with a head, the tensors are not.
        settings = json.loads((folder / "config.json").read_text())
        settings["architectures"] = ["Qwen3ForCausalLM"]
        settings["is_matryoshka"] = True
        dump(folder / "config.json", settings)
    model = SentenceTransformer(str(folder), device="cpu",
                                model_kwargs={"dtype": torch.float32})
    embeddings = [model.encode([text])[0].tolist() for text in TEXTS]
    ids = [model.tokenizer(text)["input_ids"] for text in TEXTS]
    dump(folder / "expected.json", {"texts": TEXTS, "token_ids": ids, "embeddings": embeddings})


def cross_encoder(name, config, tokenizer):
    folder = HERE / name
    model = AutoModelForSequenceClassification.from_config(config)
    write(folder, random_weights(model, name), tokenizer)
    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    scores = [float(model.predict([(QUERY, text)])[0]) for text in DOCUMENTS]
    dump(folder / "expected.json", {"query": QUERY, "documents": DOCUMENTS, "scores": scores})


def qwen3_reranker(name, tokenizer):
    folder = HERE / name
    write(folder, random_weights(AutoModelForCausalLM.from_config(qwen3(tokenizer)), name), tokenizer)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    yes, no = (tokenizer.convert_tokens_to_ids(token) for token in ("yes", "no"))
    scores = []
    with torch.no_grad():
        for document in DOCUMENTS:
            ids = tokenizer(QUERY + document)["input_ids"]
            logits = model(torch.tensor([ids])).logits[0, -1]
            scores.append(float(torch.softmax(logits[[no, yes]], 0)[1]))
    dump(folder / "expected.json", {"query": QUERY, "documents": DOCUMENTS, "scores": scores})


def qwen3_classifier(name, tokenizer):
    folder = HERE / name
    config = qwen3(tokenizer, num_labels=1, pad_token_id=tokenizer.pad_token_id)
    model = AutoModelForSequenceClassification.from_config(config)
    write(folder, random_weights(model, name), tokenizer)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        ids = [tokenizer(QUERY + document)["input_ids"] for document in DOCUMENTS]
        scores = [float(torch.sigmoid(model(torch.tensor([i])).logits[0, 0])) for i in ids]
    dump(folder / "expected.json", {"query": QUERY, "documents": DOCUMENTS, "scores": scores})


def main():
    pieces = word_piece()
    makers = {
        "qwen3_embedding": lambda n: embedding_model(
            n, qwen3(byte_level(True)), byte_level(True), "lasttoken", max_seq_length=256),
        # As all-MiniLM-L6-v2.
        "bert_mean": lambda n: embedding_model(n, bert(pieces), pieces, "mean_tokens"),
        # As bge; without its norm, so that lengths are compared too.
        "bert_cls": lambda n: embedding_model(n, bert(pieces, hidden_act="gelu_new"), pieces, "cls_token",
                                              normalize=False),
        "nomic": lambda n: embedding_model(n, nomic(pieces), pieces, "mean_tokens", max_seq_length=128),
        "xlm_roberta": lambda n: embedding_model(n, xlm_roberta(unigram()), unigram(), "cls_token",
                                                 max_seq_length=60),
        "bert_reranker": lambda n: cross_encoder(n, bert(pieces, num_labels=1), pieces),
        "xlm_roberta_reranker": lambda n: cross_encoder(n, xlm_roberta(unigram(), num_labels=1), unigram()),
        "qwen3_reranker": lambda n: qwen3_reranker(n, byte_level(False)),
        "qwen3_classifier": lambda n: qwen3_classifier(n, byte_level(False)),
    }
    for name, make in makers.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name)
            print(name, sum(f.stat().st_size for f in (HERE / name).rglob("*") if f.is_file()))


if __name__ == "__main__":
    main()
