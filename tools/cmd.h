// SPDX-License-Identifier: Apache-2.0
// The subcommands of the plimsoll program. Each gets argv with its own name in argv[0] and returns
// the exit status: 0 success, 1 failure at run time, 2 a wrong command line.
#ifndef PLM_TOOLS_CMD_H
#define PLM_TOOLS_CMD_H

int plim_cmd_bench(int argc, char **argv);
int plim_cmd_devices(int argc, char **argv);
int plim_cmd_inspect(int argc, char **argv);
int plim_cmd_list(int argc, char **argv);
int plim_cmd_plan(int argc, char **argv);
int plim_cmd_pull(int argc, char **argv);
int plim_cmd_rm(int argc, char **argv);
int plim_cmd_run(int argc, char **argv);
int plim_cmd_serve(int argc, char **argv);

#endif
