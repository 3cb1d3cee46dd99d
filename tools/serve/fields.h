// SPDX-License-Identifier: Apache-2.0
// The judgement of a body's fields by name (fields.def), before anybody reads their values.
#ifndef PLM_SERVE_FIELDS_H
#define PLM_SERVE_FIELDS_H

#include <stdbool.h>

#include "tools/json.h"
#include "tools/serve/errors.h"

// One per format of bodies; they are bits of a set.
enum plm_fields_format {
    PLM_FIELDS_CHAT = 1,
    PLM_FIELDS_TEXT = 2,
    PLM_FIELDS_TOKENIZE = 4,
    PLM_FIELDS_DETOKENIZE = 8,
    PLM_FIELDS_TEMPLATE = 16,
    PLM_FIELDS_SLEEP = 32,
    PLM_FIELDS_WAKE = 64,
};

// Any worker. False: a field of the document asks for what is not done here, and error names it.
// What is ignored is named in the log, each name once. inside: the name of the object whose members
// these are, or NULL for a body.
bool plm_fields_judge(const struct plm_json_doc *doc, enum plm_fields_format format,
                      const char *inside, struct plm_api_error *error);
// Who is told of a name that is ignored; NULL: nobody (the default). Before the first judgement.
void plm_fields_on_ignored(void (*tell)(const char *name, bool known));

#endif
