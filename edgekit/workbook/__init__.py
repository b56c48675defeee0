"""The workbook: config, plan, the execution of notebooks, reuse of finished stages, and reproduction of bundles."""
