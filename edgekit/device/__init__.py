"""The device package: releases, trust, monitoring, doctor, timing and tuning. The runner finds it by name."""
