"""Full-text search: BM25 over documents that all attempts of a process share. The same words always find the same
documents in the same order; documents with equal scores keep their order."""

import re
import unicodedata
from collections.abc import Iterable

from longloop.types import UserError

_COMMON = (
    "a an and are as at be but by for from if in into is it no not of on or s such t that the their then there these "
    "they this to was will with"
)
_STOP = frozenset(_COMMON.split())


class Index:
    """BM25 with the parameters that Lucene-based baselines of this field use."""

    def __init__(self, documents: Iterable[str]) -> None:
        try:
            import bm25s
        except ImportError:
            raise UserError("Searching needs the package bm25s: pip install 'longloop[envs]'.") from None
        vocabulary: dict[str, int] = {}
        ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(text)] for text in documents]
        self._bm25 = bm25s.BM25(k1=0.9, b=0.4, backend="numpy")
        self._bm25.index((ids, vocabulary), show_progress=False)

    def find(self, query: str, most: int) -> list[int]:
        """Return the indices of the best documents that have a word of the query, best first."""
        known = self._bm25.get_tokens_ids(words(query))
        if not known:
            return []
        scores = self._bm25.get_scores_from_ids(known)
        best = (-scores).argsort(kind="stable")[:most]
        return [int(number) for number in best if scores[number] > 0]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without accents, plurals without their s, common words left out."""
    return [_singular(word) for word in re.findall(r"\w+", folded(text)) if word not in _STOP]


def folded(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "xes", "ches", "shes")) else word[:-1]
