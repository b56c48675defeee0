"""Faults in training, distilling, pruning, quantizing and converting."""

from __future__ import annotations

from tests.mutants.seeds.seed import Seed

TRAINING = (
    Seed(
        "accuracy-over-the-wrong-axis",
        "train.py",
        "logits(module, split.x, preprocess, device=device).argmax(axis=1) == split.y",
        "logits(module, split.x, preprocess, device=device).argmax(axis=0) == split.y",
        "every accuracy is a figure without meaning",
        ("tests/test_train.py",),
    ),
    Seed(
        "worst-epoch-kept",
        "train.py",
        "self._rank(result) > self._rank(self.best)",
        "self._rank(result) < self._rank(self.best)",
        "training ends with the weights of its worst epoch",
        ("tests/test_train.py",),
    ),
    Seed(
        "teacher-not-in-eval-mode",
        "teaching.py",
        "    teacher.eval()\n",
        "    teacher.train()\n",
        "the teacher's batch statistics drift while it teaches, and the baseline with them",
        ("tests/test_train.py",),
    ),
    Seed(
        "temperature-not-squared",
        "losses/soft_targets.py",
        "alpha * temperature**2 * soft",
        "alpha * temperature * soft",
        "the teacher counts for less the higher the temperature",
        ("tests/losses",),
    ),
    Seed(
        "teacher-and-student-swapped",
        "losses/soft_targets.py",
        """log_softmax(student_logits / temperature, dim=1),
        functional.log_softmax(teacher_logits / temperature, dim=1),
""",
        """log_softmax(teacher_logits / temperature, dim=1),
        functional.log_softmax(student_logits / temperature, dim=1),
""",
        "the divergence is taken the other way round",
        ("tests/losses",),
    ),
    Seed(
        "worse-student-kept",
        "stages/distill/student.py",
        'store.save(out / "model", kept.module, spec)',
        'store.save(out / "model", alone.module, spec)',
        "the student that ships is not the one that the decision names",
        ("tests/stages/distill/test_student.py::test_the_best_on_validation_is_kept",),
    ),
    Seed(
        "worst-teacher-chosen",
        "stages/distill/teacher.py",
        "return max(found, key=lambda each: each.accuracy)",
        "return min(found, key=lambda each: each.accuracy)",
        "the student learns from whoever knows least",
        ("tests/stages/distill/test_student.py::test_the_best_teacher_teaches_and_each_stands_in_the_record",),
    ),
    Seed(
        "answers-of-another-teacher",
        "answers.py",
        '"teacher": teacher_digest(teacher),',
        '"teacher": "",',
        "a student is taught by what another teacher once said",
        ("tests/test_answers.py",),
    ),
    Seed(
        "generator-not-put-back",
        "train.py",
        '        self.random.bit_generator.state = facts["random"]\n',
        "",
        "a training that was stopped goes on with other batches than it would have seen",
        ("tests/test_checkpoint.py",),
    ),
    Seed(
        "checkpoint-of-another-training",
        "checkpoint.py",
        """                if note["key"] != self.key:
                    return None
""",
        "",
        "a training goes on from weights that another config made",
        ("tests/test_checkpoint.py::test_another_key_begins_anew",),
    ),
)

PRUNING = (
    Seed(
        "first-step-recorded-as-kept",
        "stages/prune/walk.py",
        "last = inside[-1] if inside else 0",
        "last = inside[0] if inside else 0",
        "the record praises another network than the one that ships",
        ("tests/stages/prune/test_walk.py::test_the_last_step_inside_the_budget_is_kept_or_the_student",),
    ),
    Seed(
        "step-outside-the-budget-kept",
        "stages/prune/walk.py",
        'store.save(out / "model", pruned[_kept_step(channels)], spec)',
        'store.save(out / "model", pruned[-1], spec)',
        "the network that ships is one that lost too much",
        ("tests/stages/prune/test_walk.py::test_what_is_kept_is_what_the_record_says",),
    ),
    Seed(
        "mask-dropped-in-fine-tuning",
        "stages/prune/walk.py",
        "tuner.tune(module, f\"{technique.__name__.rpartition('.')[2]}-{number}\", keep_up)",
        "tuner.tune(module, f\"{technique.__name__.rpartition('.')[2]}-{number}\")",
        "the pruned weights grow back",
        ("tests/stages/prune/test_walk.py::test_zeroed_weights_stay_zero_through_fine_tuning",),
    ),
    Seed(
        "layers-without-a-bound",
        "stages/prune/structured.py",
        """        if config.scope == "global":
            bound(pruner, config)
""",
        "",
        "one step over the whole network leaves a layer with hardly a channel",
        ("tests/stages/prune/test_importance.py",),
    ),
    Seed(
        "share-of-the-gain-upside-down",
        "stages/prune/latency.py",
        'measured["measured"] / predicted',
        'predicted / measured["measured"]',
        "the less of the predicted speed-up arrives, the better the table looks",
        ("tests/stages/prune/test_latency.py::test_the_share_is_the_measured_speed_up_over_the_predicted_one",),
    ),
    Seed(
        "largest-weights-pruned",
        "stages/prune/unstructured.py",
        "(w.detach().abs() > threshold)",
        "(w.detach().abs() < threshold)",
        "the weights that matter most are zeroed",
        ("tests/stages/prune/test_unstructured.py",),
    ),
)

QUANTIZING = (
    Seed(
        "ptq-budget-the-wrong-way-round",
        "stages/quantize/choice.py",
        "if not ptq_refused:",
        "if ptq_refused:",
        "PTQ is chosen where it misses the budget",
        ("tests/stages/quantize/test_choice.py",),
    ),
    Seed(
        "ptq-calibrated-on-validation",
        "stages/quantize/__init__.py",
        "ptq.calibration_inputs(data.calibration.x, steps",
        "ptq.calibration_inputs(data.validation.x, steps",
        "int8 is judged on the samples that set its ranges",
        ("tests/stages/quantize/test_stage.py",),
    ),
    Seed(
        "first-samples-calibrate",
        "stages/quantize/ptq.py",
        "np.unique(np.linspace(0, len(samples) - 1, min(count, len(samples))).round().astype(np.int64))",
        "np.arange(min(count, len(samples)))",
        "a split sorted by class is calibrated on its first class only",
        ("tests/stages/quantize/test_ptq.py",),
    ),
    Seed(
        "sensitivity-drop-negated",
        "stages/quantize/sensitivity.py",
        "100 * (_top1(reference, y) - _top1(scores, y))",
        "100 * (_top1(scores, y) - _top1(reference, y))",
        "the table shows what a layer costs as a gain",
        ("tests/stages/quantize/test_sensitivity.py",),
    ),
)

CONVERTING = (
    Seed(
        "converters-calibrate-on-validation",
        "stages/convert/walk.py",
        "evaluate.spread(data.calibration, config.calibration_samples)",
        "evaluate.spread(data.validation, config.calibration_samples)",
        "the shipped int8 models are judged on the samples that set their ranges",
        ("tests/stages/convert/test_stage.py::test_int8_ranges_are_those_of_the_calibration_split",),
    ),
    Seed(
        "tolerances-ignored",
        "stages/convert/numerics.py",
        "    return said\n",
        "    return []\n",
        "a conversion that changed the network is shipped",
        ("tests/stages/convert/test_numerics.py",),
    ),
    Seed(
        "every-boundary-held-to-int8",
        "stages/convert/walk.py",
        "self.config.tolerance(step.precision)",
        'self.config.tolerance("int8")',
        "float models may be as far off as int8 ones",
        ("tests/stages/convert/test_stage.py::test_each_precision_is_held_to_its_own_tolerance",),
    ),
    Seed(
        "agreement-over-the-wrong-axis",
        "stages/convert/numerics.py",
        "reference.argmax(axis=1) == outputs.argmax(axis=1)",
        "reference.argmax(axis=0) == outputs.argmax(axis=0)",
        "the share of equal answers is a figure without meaning",
        ("tests/stages/convert/test_numerics.py",),
    ),
    Seed(
        "negative-biases-lost",
        "targets/dead_channels.py",
        "LEVELS * abs(float(value))",
        "LEVELS * float(value)",
        "dead channels with a negative bias still lose it in TFLite int8",
        ("tests/targets/test_dead_channels.py",),
    ),
    Seed(
        "depthwise-channels-on-the-wrong-axis",
        "targets/dead_channels.py",
        '"DEPTHWISE_CONV_2D": 3',
        '"DEPTHWISE_CONV_2D": 0',
        "dead channels of depthwise layers lose their biases in TFLite int8",
        ("tests/targets/test_dead_channels.py",),
    ),
    Seed(
        "openvino-fp32-is-fp16",
        "targets/openvino.py",
        'compress_to_fp16=precision == "fp16"',
        "compress_to_fp16=True",
        "the fp32 model has fp16 weights",
        ("tests/targets/test_targets.py",),
    ),
)
