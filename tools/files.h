// SPDX-License-Identifier: Apache-2.0
// Whole files, for texts that the user names on the command line. Messages go to stderr and name
// the command and the file.
#ifndef PLM_TOOLS_FILES_H
#define PLM_TOOLS_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

// Reads a text of at most max_bytes from a file, or from an open stream when file is not NULL (path
// is then only its name). The caller frees it; a NUL follows it. NULL: a message was printed.
// Bytes that are NUL are refused, because options end at them.
char *plm_file_read(const char *command, const char *path, FILE *file, size_t max_bytes,
                    size_t *ret_len);

// Every file that the program writes comes from here: under a random name that did not exist,
// readable by the user alone, then renamed into place. So others see the old one or the new one,
// never a part, and no link that somebody planted is followed. False: a message was printed and the
// old file is untouched.
bool plm_file_replace(const char *command, const char *path, const char *text, size_t len);
// In the names of files that are being written: NAME.part-XXXXXX.
#define PLM_FILE_PART ".part-"
// The same for a path that the user names, which may be a pipe or a device: those are written in
// place.
bool plm_file_write(const char *command, const char *path, const char *text, size_t len);

// Whether a file can be written there, asked before the work whose result it is to hold. False: a
// message was printed. Nothing is changed.
bool plm_file_writable(const char *command, const char *path);

// Makes a folder and those above it that are missing. False, with errno: it is not there.
bool plm_make_folders(const char *path, mode_t mode);

// After the last output of a command: whether stdout took everything (a full disk, a closed pipe).
bool plm_stdout_finish(const char *command);

#endif
