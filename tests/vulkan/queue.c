// SPDX-License-Identifier: Apache-2.0
// Submits and waits: where a device is lost, or hangs. A hanging submit is done by the driver as
// ever; its end is hidden until the time is over. A lost device stays lost; what was handed to the
// driver before is finished there, so that everything can be destroyed.
#include <time.h>

#include "account.h"
#include "faults.h"
#include "layer.h"

#define NAP_NS 1000000 // how long a wait for a hidden end sleeps at a time

// ---- submits ----

// What one call submits, of either form.
struct submit {
    VkSemaphore semaphores[HANG_SIGNALS];
    uint64_t values[HANG_SIGNALS];
    uint32_t n;
};

static void add_signal(struct submit *submit, VkSemaphore semaphore, uint64_t value)
{
    if (submit->n < HANG_SIGNALS && value != 0) { // 0: a binary semaphore
        submit->semaphores[submit->n] = semaphore;
        submit->values[submit->n++] = value;
    }
}

// On a device that is really lost nothing runs any more: what was handed down before is let end.
static void lose(struct layer_device *device, const struct fault *fault)
{
    device->DeviceWaitIdle(device->handle);
    atomic_store(&device->lost, true);
    faults_lose(fault);
}

// True: the device is lost, or a rule struck; *ret is what the call then returns.
static bool strike(struct layer_device *device, enum fault_place place, struct fault *fault,
                   VkResult *ret)
{
    *fault = (struct fault){.result = VK_ERROR_DEVICE_LOST};
    if (!atomic_load(&device->lost)) {
        if (!faults_strike(place, 0, fault)) {
            return false;
        }
        if (fault->result == VK_ERROR_DEVICE_LOST) {
            lose(device, fault);
        }
    }
    *ret = fault->result;
    return true;
}

// True: the call ends here with this result.
static bool strike_submit(struct layer_device *device, const struct submit *submit, VkFence fence,
                          VkResult *ret)
{
    struct fault fault;
    if (!strike(device, PLACE_SUBMIT, &fault, ret)) {
        return false;
    }
    if (fault.result != VK_TIMEOUT) {
        return true;
    }
    pthread_mutex_lock(&device->lock);
    struct layer_hang *hang = &device->hang;
    *hang = (struct layer_hang){
        .until_ns = fault_now_ns() + fault.ms * 1000000, .n = submit->n, .fence = fence};
    for (uint32_t i = 0; i < submit->n; i++) {
        hang->semaphores[i] = submit->semaphores[i];
        hang->values[i] = submit->values[i];
    }
    pthread_mutex_unlock(&device->lock);
    return false;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit2(VkQueue queue, uint32_t n, const VkSubmitInfo2 *infos,
                                              VkFence fence)
{
    struct layer_device *device = layer_device_of(queue);
    struct submit submit = {.n = 0};
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t s = 0; s < infos[i].signalSemaphoreInfoCount; s++) {
            add_signal(&submit, infos[i].pSignalSemaphoreInfos[s].semaphore,
                       infos[i].pSignalSemaphoreInfos[s].value);
        }
    }
    if (strike_submit(device, &submit, fence, &result)) {
        return result;
    }
    result = device->QueueSubmit2(queue, n, infos, fence);
    if (result == VK_SUCCESS) {
        account_add(ACCOUNT_submits, 1);
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t c = 0; c < infos[i].commandBufferInfoCount; c++) {
                account_run((uint64_t)(uintptr_t)infos[i].pCommandBufferInfos[c].commandBuffer);
            }
        }
    }
    return result;
}

static void add_signals(struct submit *submit, const VkSubmitInfo *info)
{
    const VkBaseInStructure *at = info->pNext;
    for (; at != NULL; at = at->pNext) {
        const VkTimelineSemaphoreSubmitInfo *timeline = (const void *)at;
        if (at->sType == VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO) {
            for (uint32_t i = 0; i < timeline->signalSemaphoreValueCount; i++) {
                add_signal(submit, info->pSignalSemaphores[i], timeline->pSignalSemaphoreValues[i]);
            }
        }
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL submit1(VkQueue queue, uint32_t n, const VkSubmitInfo *infos,
                                              VkFence fence)
{
    struct layer_device *device = layer_device_of(queue);
    struct submit submit = {.n = 0};
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < n; i++) {
        add_signals(&submit, &infos[i]);
    }
    if (strike_submit(device, &submit, fence, &result)) {
        return result;
    }
    result = device->QueueSubmit(queue, n, infos, fence);
    if (result == VK_SUCCESS) {
        account_add(ACCOUNT_submits, 1);
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t c = 0; c < infos[i].commandBufferCount; c++) {
                account_run((uint64_t)(uintptr_t)infos[i].pCommandBuffers[c]);
            }
        }
    }
    return result;
}

// ---- waits ----

// Whether the end that a wait is for is hidden now. value 0: a fence; semaphore NULL too: any.
static bool hangs(struct layer_device *device, VkSemaphore semaphore, uint64_t value, VkFence fence)
{
    pthread_mutex_lock(&device->lock);
    const struct layer_hang *hang = &device->hang;
    bool running = fault_now_ns() < hang->until_ns;
    bool found = semaphore == VK_NULL_HANDLE && fence == VK_NULL_HANDLE;
    for (uint32_t i = 0; i < hang->n; i++) {
        found = found || (hang->semaphores[i] == semaphore && value >= hang->values[i]);
    }
    found = found || (fence != VK_NULL_HANDLE && hang->fence == fence);
    pthread_mutex_unlock(&device->lock);
    return running && found;
}

// The application may give up on what hangs, and free what it uses.
void queue_settle(struct layer_device *device)
{
    if (hangs(device, VK_NULL_HANDLE, 0, VK_NULL_HANDLE)) {
        device->DeviceWaitIdle(device->handle);
    }
}

static void nap(void)
{
    const struct timespec time = {.tv_nsec = NAP_NS};
    nanosleep(&time, NULL);
}

// Any look at what was submitted; true: it ends here with this result.
static bool strike_wait(struct layer_device *device, VkResult *ret)
{
    struct fault fault;
    return strike(device, PLACE_WAIT, &fault, ret);
}

// What is left of a timeout that began at a time.
static uint64_t left(uint64_t timeout_ns, int64_t begin_ns)
{
    uint64_t used = (uint64_t)(fault_now_ns() - begin_ns);
    if (timeout_ns == UINT64_MAX) {
        return timeout_ns;
    }
    return timeout_ns > used ? timeout_ns - used : 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice handle,
                                                      const VkSemaphoreWaitInfo *info,
                                                      uint64_t timeout)
{
    struct layer_device *device = layer_device_of(handle);
    int64_t begin = fault_now_ns();
    VkResult result = VK_SUCCESS;
    account_add(ACCOUNT_waits, 1);
    if (strike_wait(device, &result)) {
        return result;
    }
    for (uint32_t i = 0; i < info->semaphoreCount; i++) {
        while (hangs(device, info->pSemaphores[i], info->pValues[i], VK_NULL_HANDLE)) {
            if (left(timeout, begin) == 0) {
                return VK_TIMEOUT;
            }
            nap();
        }
    }
    return device->WaitSemaphores(handle, info, left(timeout, begin));
}

static VKAPI_ATTR VkResult VKAPI_CALL counter(VkDevice handle, VkSemaphore semaphore, uint64_t *ret)
{
    struct layer_device *device = layer_device_of(handle);
    uint64_t value = 0;
    VkResult result = VK_SUCCESS;
    if (strike_wait(device, &result)) {
        return result;
    }
    result = device->GetSemaphoreCounterValue(handle, semaphore, &value);
    if (result != VK_SUCCESS) {
        return result;
    }
    while (value > 0 && hangs(device, semaphore, value, VK_NULL_HANDLE)) {
        value--; // down to the last one that is not hidden
    }
    *ret = value;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_fences(VkDevice handle, uint32_t n,
                                                  const VkFence *fences, VkBool32 all,
                                                  uint64_t timeout)
{
    struct layer_device *device = layer_device_of(handle);
    int64_t begin = fault_now_ns();
    VkResult result = VK_SUCCESS;
    account_add(ACCOUNT_waits, 1);
    if (strike_wait(device, &result)) {
        return result;
    }
    for (uint32_t i = 0; i < n; i++) {
        while (hangs(device, VK_NULL_HANDLE, 0, fences[i])) {
            if (left(timeout, begin) == 0) {
                return VK_TIMEOUT;
            }
            nap();
        }
    }
    return device->WaitForFences(handle, n, fences, all, left(timeout, begin));
}

static VKAPI_ATTR VkResult VKAPI_CALL fence_status(VkDevice handle, VkFence fence)
{
    struct layer_device *device = layer_device_of(handle);
    VkResult result = VK_SUCCESS;
    if (strike_wait(device, &result)) {
        return result;
    }
    return hangs(device, VK_NULL_HANDLE, 0, fence) ? VK_NOT_READY
                                                   : device->GetFenceStatus(handle, fence);
}

// Idle waits of a lost device still wait in the driver: what comes next may destroy all.
static VKAPI_ATTR VkResult VKAPI_CALL queue_idle(VkQueue queue)
{
    struct layer_device *device = layer_device_of(queue);
    VkResult result = VK_SUCCESS;
    account_add(ACCOUNT_waits, 1);
    bool struck = strike_wait(device, &result);
    while (!struck && hangs(device, VK_NULL_HANDLE, 0, VK_NULL_HANDLE)) {
        nap();
    }
    VkResult below = device->QueueWaitIdle(queue);
    return struck ? result : below;
}

static VKAPI_ATTR VkResult VKAPI_CALL device_idle(VkDevice handle)
{
    struct layer_device *device = layer_device_of(handle);
    VkResult result = VK_SUCCESS;
    account_add(ACCOUNT_waits, 1);
    bool struck = strike_wait(device, &result);
    while (!struck && hangs(device, VK_NULL_HANDLE, 0, VK_NULL_HANDLE)) {
        nap();
    }
    VkResult below = device->DeviceWaitIdle(handle);
    return struck ? result : below;
}

const struct layer_wrapper queue_wrappers[] = {
    WRAPPER("vkQueueSubmit", submit1),
    WRAPPER("vkQueueSubmit2", submit2),
    WRAPPER("vkQueueSubmit2KHR", submit2),
    WRAPPER("vkQueueWaitIdle", queue_idle),
    WRAPPER("vkDeviceWaitIdle", device_idle),
    WRAPPER("vkWaitSemaphores", wait_semaphores),
    WRAPPER("vkWaitSemaphoresKHR", wait_semaphores),
    WRAPPER("vkGetSemaphoreCounterValue", counter),
    WRAPPER("vkGetSemaphoreCounterValueKHR", counter),
    WRAPPER("vkWaitForFences", wait_fences),
    WRAPPER("vkGetFenceStatus", fence_status),
    {NULL, NULL},
};
