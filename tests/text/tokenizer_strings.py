"""Strings that tokenisers are known to disagree on, and random ones. Deterministic for a seed."""

import random

FIXED = [
    "", " ", "  ", "\n", "\r\n", "\t", " \n ", "\n\n\n", "   \n\n  x", "a", " a", "a ", "  a  b   c    d     ",
    "Hello world", "Hello  world", "hello\nworld\r\nagain\rand\x0bagain\x0cend", "I'm you're we'll they've he'd it's don't",
    "I'M YOU'RE WE'LL THEY'VE HE'D IT'S DON'T", "'S 'T 'RE 'VE 'M 'LL 'D", "it\u2019s", "'\u017f '\u017ft x'\u017f k'\u212a",
    "1", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000", "0x7fff", "\u0661\u0662\u0663", "\u00bd\u00b2\u2163", "\u096a\u096b 1\u0967",
    "caf\u00e9", "cafe\u0301", "\u00c5 A\u030a \u212b", "e\u0323\u0302 e\u0302\u0323", "q\u0307\u0323 q\u0323\u0307", "\u0301start", " \u0301", "\u1e9b\u0323",
    "Vi\u1ec7t Nam", " Vi\u1ec7t", "\u0110\u00e0 N\u1eb5ng", "\u01c4 \u01c5 \u01c6", "\u02b0\u02b1", "\u00df \u1e9e", "\ufb01 \ufb06",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8\u3067\u3059\u3002", "\ud55c\uad6d\uc5b4 \ud14c\uc2a4\ud2b8", "\u1112\u1161\u11ab\u1100\u1173\u11af", "\uac00\u11a8", "\u1100\u1161", "\u304b\u3099 \u304c",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0915\u093c \u0958", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05c1\u05bc", "\ufb2c", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u0438\u0306 \u0439", "\u0393\u03b5\u03b9\u03ac", "\u03b1\u0301\u0345", "\u0b95\u0bca \u0b95\u0bc6\u0bbe",
    "\U0001f600", "\U0001f600\U0001f601\U0001f602", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd ok", "\u2764\ufe0f", "#\ufe0f\u20e3", "a\U0001f600b", " \U0001f600 ",
    "\U0001d49c\U0001d4b7", "\U00020000\U0002a6d6", "\u00a0", "a\u00a0b", "\u3000x", "\u2003\u2003y", "\u2028\u2029", "a\u0085b", "\u180e", "a\u180eb", "\u200b", "\u200c\u200d", "\ufeffbom", "\u2060", "\u00ad",
    "\x00", "a\x00b", "\x01\x02\x03", "\x1b[31mred\x1b[0m", "\x7f", "\x80\x9f", "\x1c\x1d\x1e\x1f", "\ufffd", "\uffff", "\ue000", "\U0010ffff", "\U000f0000",
    "!!!", "...", "?!?!", "-----", "=====", "////", "a//b", "http://example.com/a?b=c&d=%20#e", "user@example.com", "$100.00 \u20ac5 \u00a37", "(a)[b]{c}<d>", "\"quoted\" 'single' `code`",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; ++i) {\n  a[i] = b[i] * 2;  // twice\n}\n", "SELECT * FROM t WHERE a >= 10;\n", "{\"key\": [1, 2.5, null, true], \"s\": \"\\u00e9\"}", "<html><body class=\"x\">&nbsp;</body></html>", "$\\frac{a}{b}$ \\\\ \\alpha",
    "camelCase PascalCase snake_case SCREAMING_CASE kebab-case XMLHttpRequest", "ALLCAPS lower MiXeD iPhone", "don'tStop can'tWON'T", "a'sb 's' ''s", " 's", "\n's", "x_1 __init__ _", "\u0301\u0302\u0303", "\n \n \n", "\n\t \t\n", " \t \t x", "x \n", "x  \n", "x\n  ", "end.\n\n\nNext", "end!\r\n\r\nNext", "a/\n/b", "!/\n",
    "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<|im_end|", "|im_end|>", "<<|im_end|>>", "<|im_end|><|im_end|>", " <|im_end|> ", "a<|im_end|>b", "\n\n<|im_end|>\n\n", "<|IM_END|>", "<|im_ end|>", "<s></s>", "<unk>", "[PAD]", "<tool_call>{}</tool_call>", "<|begin_of_text|>", "<0x41>", "\u2581x", "\u0120hello \u010a", "<mask>", "x<mask>y", " <mask> ", "\u00e9<mask>\u0301", "<mask>\u200d", "yesterday", "Yesterday yesterdays", "caf\u00e9tok cafe\u0301tok", "<strip>", "  <strip>  ", "\n<strip>\n\n<strip> <|im_end|> x", "\u3000<strip>\u2003y", "<left> \t<left>", "a  <right>  \n\nb", "<right>\n\n\n",
]

WORDS = (
    "the of and a to in is you that it he was for on are as with his they I at be this have from or one had by word "
    "but not what all were we when your can said there use an each which she do how their if will up other about out "
    "many then them these so some her would make like him into time has look two more write go see number no way could "
    "people my than first water been call who oil its now find long down day did get come made may part function return "
    "self import class tokenizer internationalization Donaudampfschifffahrt na\u00efve r\u00e9sum\u00e9 \u00fcber stra\u00dfe \u010desk\u00fd"
).split()

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<tool_call>", "<mask>", "yesterday", "<strip>", "<left>", "<right>", "caf\u00e9tok", "\n\n", "  "]

# Ranges of scripts and symbols, all assigned before Unicode 14.
SCRIPTS = [
    (0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x17F), (0x180, 0x24F), (0x2B0, 0x2FF), (0x300, 0x36F), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x400, 0x4FF),
    (0x5D0, 0x5EA), (0x591, 0x5BD), (0x620, 0x64A), (0x64B, 0x65F), (0x660, 0x669), (0x905, 0x939), (0x93C, 0x94D), (0x985, 0x98C), (0xE01, 0xE30),
    (0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2), (0x1E00, 0x1EFF), (0x1F00, 0x1F15), (0x2000, 0x206F - 10), (0x20A0, 0x20BF), (0x2100, 0x214F), (0x2150, 0x218B),
    (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x257F), (0x2600, 0x26FF), (0x3000, 0x303F), (0x3041, 0x3096), (0x3099, 0x309F), (0x30A0, 0x30FF),
    (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xE000, 0xE010), (0xF900, 0xFA0E), (0xFB1D, 0xFB36), (0xFE00, 0xFE0F), (0xFF01, 0xFF5E), (0x1D400, 0x1D454), (0x1F300, 0x1F5FF),
    (0x1F600, 0x1F64F), (0x1F1E6, 0x1F1FF), (0x20000, 0x2A6D6), (0x2F800, 0x2FA1D), (0x0, 0x1F), (0x7F, 0x9F),
]


def random_string(rng):
    kind = rng.randrange(10)
    if kind == 0:  # words
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 60)))
    if kind == 1:  # one script
        low, high = rng.choice(SCRIPTS)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 40)))
    if kind == 2:  # all scripts
        return "".join(chr(rng.randint(*rng.choice(SCRIPTS))) for _ in range(rng.randint(1, 60)))
    if kind == 3:  # blanks
        return "".join(rng.choice(" \n\t\r\u00a0\u3000\u2003x1.") for _ in range(rng.randint(1, 40)))
    if kind == 4:  # long runs
        return "".join(rng.choice(["a", " ", "\n", "=", "1", "\u00e9", "\u4e2d", "\U0001f600", "aB", "-", "\u0301"]) * rng.randint(1, 300) for _ in range(rng.randint(1, 4)))
    if kind == 5:  # special tokens and halves of them between other things
        parts = []
        for _ in range(rng.randint(1, 12)):
            part = rng.choice(SPECIALS + WORDS + [" ", "\n", "\u00e9", "\u0301", "\u200d", "_"])
            parts.append(part if rng.random() < 0.8 else part[: rng.randint(1, len(part))])
        return "".join(parts)
    if kind == 6:  # code
        lines = []
        for _ in range(rng.randint(1, 12)):
            indent = rng.choice(["", "  ", "    ", "\t", "\t\t", "        "])
            lines.append(indent + rng.choice(["if (x%d) {", "x_%d = f(y, %d)", "// note %d", "}", "#define N%d", "return a[%d];", "'%d's", "->b%d::c"]).replace("%d", str(rng.randint(0, 99999))))
        return rng.choice(["\n", "\r\n", "\n\n"]).join(lines)
    if kind == 7:  # letters with marks
        return "".join(rng.choice("aeiouAEIOUcnsyq \u03b1\u0438\u05d0\u0627\u304b\u1100\uac00") + "".join(chr(rng.randint(0x300, 0x36F)) for _ in range(rng.randint(0, 3))) for _ in range(rng.randint(1, 30)))
    if kind == 8:  # emoji with joiners, selectors, skin tones
        return "".join(rng.choice(["\u200d", "\ufe0f", "\U0001f3fb", " ", ""]) + chr(rng.randint(0x1F300, 0x1F64F)) for _ in range(rng.randint(1, 20)))
    return "".join(rng.choice("aB1 .'\n-_sStTmMdDlL/\u017f") for _ in range(rng.randint(1, 60)))  # contractions


def strings(seed, count):
    rng = random.Random(seed)
    return FIXED + [random_string(rng) for _ in range(count)]


def corpus(seed):
    """Text to train small vocabularies on: a bit of everything, so that all kinds of merges exist."""
    return [s for s in strings(seed, 6000)]
