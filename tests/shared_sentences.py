"""Sentences for the reference model."""

SENTENCES = [
    "Where is the station?",
    "I have never seen such a beautiful city.",
    "Tom is reading a book.",
    "It is raining.",
    "She asked me whether I was hungry, and I told her that I had just eaten.",
    "Thank you!",
    "We don't know when the train will arrive.",
    "My brother lives in a small house near the river.",
    "Can you help me?",
    "The children were playing in the garden when it started to snow.",
    "Mary bought three apples and a loaf of bread.",
    "Nobody believed him.",
]
LONG = "The quick brown fox jumps over the lazy dog while the old man reads his newspaper in the garden."
