/* A plugin for QEMU's user mode that counts the instructions executed, as QEMU's own test plugin
 * `insn` does with inline=on.  Debian's qemu-user has plugins, but no package has their header: what
 * is used of it (version 1) is declared here.
 *
 *   qemu-x86_64 -plugin qemu_count.so -d plugin -D LOG PROGRAM ARGS
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { INLINE_ADD_U64 = 0 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb* block, size_t i);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*call)(qemu_plugin_id_t, struct qemu_plugin_tb*));
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn* insn, int operation,
                                                void* memory, uint64_t add);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*call)(qemu_plugin_id_t, void*),
                                    void* user);
void qemu_plugin_outs(const char* text);

int qemu_plugin_version = 1;

static uint64_t instructions;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb* block) {
  (void)id;
  const size_t count = qemu_plugin_tb_n_insns(block);
  for (size_t i = 0; i < count; i++) {
    qemu_plugin_register_vcpu_insn_exec_inline(qemu_plugin_tb_get_insn(block, i), INLINE_ADD_U64,
                                               &instructions, 1);
  }
}

static void at_exit(qemu_plugin_id_t id, void* user) {
  (void)id;
  (void)user;
  char text[64];
  snprintf(text, sizeof text, "instructions %" PRIu64 "\n", instructions);
  qemu_plugin_outs(text);
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info* info, int argc, char** argv) {
  (void)info;
  (void)argc;
  (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, at_exit, NULL);
  return 0;
}
