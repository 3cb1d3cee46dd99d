// SPDX-License-Identifier: Apache-2.0
// The manual page plimsoll(1), apart from the commands' options: `plimsoll help --man` prints it.
#ifndef PLM_TOOLS_MAN_H
#define PLM_TOOLS_MAN_H

// What comes before the commands, and what comes after. To stdout.
void plm_man_begin(void);
void plm_man_end(void);

#endif
