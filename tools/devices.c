// SPDX-License-Identifier: Apache-2.0
// plimsoll devices: what --device can name on this machine.
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/opts.h"

struct flags {
    bool json;
};

static const struct plm_opt table[] = {
    PLM_OPT("--json", NULL, "as JSON", PLM_OPT_FLAG, offsetof(struct flags, json)),
    PLM_OPT_END,
};

static void print_table(const plim_device_info *devices, size_t n)
{
    printf("%-12s %14s  %s\n", "ID", "MEMORY", "NAME");
    for (size_t i = 0; i < n; i++)
        printf("%-12s %10.1f GiB  %s\n", devices[i].id,
               (double)devices[i].total_bytes / (1024.0 * 1024.0 * 1024.0), devices[i].name);
}

static void print_json(const plim_device_info *devices, size_t n)
{
    json_object *list = json_object_new_array();
    for (size_t i = 0; i < n; i++) {
        json_object *device = json_object_new_object();
        json_object_object_add(device, "id", json_object_new_string(devices[i].id));
        json_object_object_add(device, "name", json_object_new_string(devices[i].name));
        json_object_object_add(device, "total_bytes",
                               json_object_new_uint64(devices[i].total_bytes));
        json_object_array_add(list, device);
    }
    puts(json_object_to_json_string_ext(list,
                                        JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(list);
}

// What stands between this machine and devices that the build could use: not part of the list.
static void print_missing(void)
{
    size_t need = 0;
    if (plim_device_missing(NULL, 0, &need) != PLIM_ERR_LIMIT || need == 0)
        return;
    char *text = malloc(need + 1);
    if (text != NULL && plim_device_missing(text, need + 1, &need) == PLIM_OK)
        fputs(text, stderr);
    free(text);
}

int plim_cmd_devices(int argc, char **argv)
{
    struct flags flags = {0};
    const struct plm_opt_group group = {"options", table, &flags};
    const struct plm_opt_command cmd = {
        .name = "devices",
        .summary =
            "Lists the devices that a model can run on; on stderr, what is missing for others.",
        .groups = &group,
        .n_groups = 1,
    };
    enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, NULL, NULL);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    plim_device_info devices[64];
    size_t n = 0;
    int r = plim_device_list(devices, 64, &n);
    if (r != PLIM_OK) {
        fprintf(stderr, "plimsoll devices: %s\n", plim_strstatus(r));
        return 1;
    }
    if (n > 64)
        n = 64;
    if (flags.json)
        print_json(devices, n);
    else
        print_table(devices, n);
    print_missing();
    return plm_stdout_finish("devices") ? 0 : 1;
}
