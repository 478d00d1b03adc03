"""What an answer is. One file per kind; importing this package registers them all."""

from paredown.answers._kind import RULED_OUT, Direction, Kind
from paredown.answers._prediction import Prediction
from paredown.answers._questions import Choices, Question, Sentence
from paredown.answers._rows import IGNORED, Encoded, Row, collate, flat, joined
from paredown.answers._spans import SpanPrediction
from paredown.answers.choice import Choice
from paredown.answers.label import SingleLabel
from paredown.answers.labels import MultiLabel
from paredown.answers.marked import Marked, MarkedPrediction
from paredown.answers.number import Regression
from paredown.answers.span import Span
from paredown.answers.supported_span import SupportedSpan
from paredown.answers.words import TokenLabel

__all__ = [
    "IGNORED",
    "RULED_OUT",
    "Choice",
    "Choices",
    "Direction",
    "Encoded",
    "Kind",
    "Marked",
    "MarkedPrediction",
    "MultiLabel",
    "Prediction",
    "Question",
    "Regression",
    "Row",
    "Sentence",
    "SingleLabel",
    "Span",
    "SpanPrediction",
    "SupportedSpan",
    "TokenLabel",
    "collate",
    "flat",
    "joined",
]
