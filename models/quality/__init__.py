"""How well llms answer: answers that were judged, a model of them, and whom thresholds let answer."""
