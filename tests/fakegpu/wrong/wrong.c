// SPDX-License-Identifier: Apache-2.0
// A library that has a driver's name and nothing of what a driver does: another vendor's, or a stub
// that an installer left.
int plm_not_a_driver(void);

__attribute__((visibility("default"))) int plm_not_a_driver(void)
{
    return 0;
}
