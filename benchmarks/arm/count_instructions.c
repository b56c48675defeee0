/* A plugin of qemu-user that prints how many guest instructions a program has executed.

   The prototypes are those of qemu-plugin.h, which Debian does not package. The functions that are used here are the
   same in every version of the interface; qemu refuses a plugin whose version it does not support. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_THREADS 1024

struct qemu_plugin_tb;
typedef uint64_t qemu_plugin_id_t;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);

EXPORT int qemu_plugin_version = INTERFACE;
static uint64_t counts[MAX_THREADS];

static void executed(unsigned thread, void *instructions)
{
    counts[thread % MAX_THREADS] += (uintptr_t)instructions;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

static void ended(qemu_plugin_id_t id, void *unused)
{
    uint64_t sum = 0;
    for (int thread = 0; thread < MAX_THREADS; thread++)
        sum += counts[thread];
    fprintf(stderr, "\ninstructions: %llu\n", (unsigned long long)sum);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
