# SPDX-License-Identifier: Apache-2.0
"""Completes one prompt from Python, as in: python3 plimsoll.py model.gguf 'Once upon a time'"""
import ctypes as c
import sys

lib = c.CDLL("libplimsoll.so.0")  # where the loader finds it, or LD_LIBRARY_PATH says
lib.plim_strstatus.restype = c.c_char_p
DONE = 3  # of enum plim_event_type


def struct(**fields):
    return type("Struct", (c.Structure,), {"_fields_": list(fields.items())})


# Structs declare their first fields alone, as far as they are used: the library keeps to the size it is told.
U32, SIZE, TEXT = c.c_uint32, c.c_size_t, c.c_char_p
Error = struct(struct_size=U32, status=c.c_int32, term=c.c_char * 32, param=c.c_char * 64, message=c.c_char * 512)
EngineOpts = struct(struct_size=U32, threads=U32, model_path=TEXT, device=TEXT, ctx_size=U32)
RequestOpts = struct(struct_size=U32, n=U32, chat_json=TEXT, chat_json_len=SIZE, prompt=TEXT, prompt_len=SIZE,
                     tokens=c.c_void_p, n_tokens=SIZE, parse_special=U32, max_tokens=U32)
Event = struct(struct_size=U32, type=c.c_int32, choice=U32, finish=c.c_int32, status=c.c_int32, token=c.c_int32,
               text=c.c_void_p, text_len=SIZE)
Metric = struct(name=TEXT, value=c.c_double)


def call(function, *args):
    error = Error(c.sizeof(Error))
    if function(*args, c.byref(error)) != 0:
        raise RuntimeError(f"{error.message.decode()} ({error.param.decode() or error.term.decode()})")


class Engine:
    def __init__(self, model, **options):
        opts, self.handle = EngineOpts(), c.c_void_p()
        lib.plim_engine_opts_init_sized(c.byref(opts), SIZE(c.sizeof(opts)))
        for name, value in {"model_path": model.encode(), **options}.items():
            setattr(opts, name, value)
        call(lib.plim_engine_create, c.byref(opts), c.byref(self.handle))

    def complete(self, prompt, max_tokens):
        ask, request, event, text = RequestOpts(), c.c_void_p(), Event(c.sizeof(Event)), prompt.encode()
        lib.plim_request_opts_init_sized(c.byref(ask), SIZE(c.sizeof(ask)))
        ask.prompt, ask.prompt_len, ask.max_tokens = text, len(text), max_tokens
        call(lib.plim_request_submit, self.handle, c.byref(ask), c.byref(request))
        while lib.plim_request_next(request, c.c_int64(-1), c.byref(event)) == 0 and event.type != DONE:
            yield c.string_at(event.text, event.text_len).decode()
        lib.plim_request_free(request)
        if event.status != 0:
            raise RuntimeError(lib.plim_strstatus(event.status).decode())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    engine, metrics, n = Engine(sys.argv[1], ctx_size=128), (Metric * 256)(), SIZE()
    print(*engine.complete(sys.argv[2], 50), sep="")
    lib.plim_engine_metric_list(engine.handle, metrics, SIZE(256), c.byref(n))
    print(*(f"{m.name.decode()} {m.value:g}" for m in metrics[:n.value] if m.value), sep="\n")
    lib.plim_engine_free(engine.handle)
