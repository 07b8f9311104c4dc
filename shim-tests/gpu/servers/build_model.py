"""Makes a language model with random weights for `transformers serve`: build_model.py FOLDER

A Llama of 3.0 billion parameters, bf16, 6 GB, and a tokenizer whose 32,000 words each stand for one token, so that equal text is equal tokens.
Everything from a fixed seed, nothing from the network.
"""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

import lines

WORDS = 32000 // lines.SCALE
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def tokenizer():
    words = ["<unk>", "<bos>", "<eos>", *(f"w{number:05}" for number in range(WORDS - 3))]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>", pad_token="<eos>", chat_template=TEMPLATE
    )


def config():
    width = 3072 // lines.SCALE
    return LlamaConfig(
        vocab_size=WORDS, hidden_size=width, intermediate_size=8192 // lines.SCALE, num_hidden_layers=28 if lines.SCALE == 1 else 2,
        num_attention_heads=24 if lines.SCALE == 1 else 4, num_key_value_heads=8 if lines.SCALE == 1 else 2,
        max_position_embeddings=4096, bos_token_id=1, eos_token_id=2, pad_token_id=2, dtype="bfloat16",
    )  # fmt: skip


def main():
    torch.manual_seed(1)
    with torch.device(lines.DEVICE):
        model = AutoModelForCausalLM.from_config(config(), dtype=torch.bfloat16)
    # Answers are drawn where a request has no temperature 0, and of full length: a random model would end them anywhere.
    model.generation_config = GenerationConfig(
        do_sample=True, bos_token_id=1, eos_token_id=2, pad_token_id=2, suppress_tokens=[0, 1, 2]
    )  # fmt: skip
    model.save_pretrained(sys.argv[1])
    tokenizer().save_pretrained(sys.argv[1])
    print(f"{sum(weight.numel() for weight in model.parameters()) / 1e9:.2f} billion parameters in {sys.argv[1]}")


main()
