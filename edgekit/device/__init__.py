"""What looks after a device: releases, trust, monitor, doctor, timing and tuning. The runner finds it by name."""
