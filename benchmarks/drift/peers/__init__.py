"""What others offer: river while the samples come, alibi-detect and evidently in windows afterwards."""
