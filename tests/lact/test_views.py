"""The view model: its identities, its states, and the published layout against a plain computation in that layout."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.cameras import Cameras, camera_rays
from assay.lact.scenes import sphere_views
from assay.lact.state import LaCTState
from assay.lact.views import (
    LaCTViewSynthesis,
    ViewConfig,
    ViewSynthesis,
    load_view_model,
    make_view_model,
    published_names,
    save_view_model,
)

TINY = ViewConfig(dim=16, layers=2, patch=2, head_dim=8, fast_heads=2, expand=1.5, registers=5, init_std=0.4)
MEMORIES = ("lact", "full", "perceiver", "none")


def scenes(*, scenes: int = 2, views: int = 5, size: int = 4) -> tuple[Tensor, Cameras]:
    images, cameras = sphere_views(scenes, views, size=size, generator=torch.Generator().manual_seed(7))
    return images.double(), cameras.to(torch.float64)


def model_of(memory: str = "lact", **changes: object) -> ViewSynthesis:
    torch.manual_seed(0)
    return make_view_model(replace(TINY, memory=memory, **changes)).double().eval()


def split(images: Tensor, cameras: Cameras, inputs: int = 3) -> tuple[Tensor, Cameras, Cameras]:
    return images[:, :inputs], cameras.views(slice(0, inputs)), cameras.views(slice(inputs, None))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("rule", ["gd", "muon", "muon_momentum"])
def test_rendering_a_reconstruction_equals_the_one_pass(memory, rule):
    model = model_of(memory, rule=rule)
    known, cameras, asked = split(*scenes())
    torch.testing.assert_close(
        model.render(model.reconstruct(known, cameras), asked), model(known, cameras, asked), atol=1e-11, rtol=0
    )


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_order_of_the_input_views_does_not_matter(memory):
    model = model_of(memory)
    known, cameras, asked = split(*scenes())
    turned = [2, 0, 1]
    torch.testing.assert_close(
        model(known[:, turned], cameras.views(turned), asked), model(known, cameras, asked), atol=1e-10, rtol=0
    )


@pytest.mark.parametrize("memory", MEMORIES)
def test_views_are_rendered_independently_of_one_another(memory):
    model = model_of(memory)
    known, cameras, asked = split(*scenes())
    state = model.reconstruct(known, cameras)
    one_by_one = torch.cat([model.render(state, asked.views([number])) for number in range(len(asked))], dim=1)
    torch.testing.assert_close(one_by_one, model(known, cameras, asked), atol=1e-11, rtol=0)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_scene_does_not_depend_on_the_others_of_its_batch(memory):
    model = model_of(memory)
    known, cameras, asked = split(*scenes())
    alone = model(known[1:], cameras.scenes([1]), asked.scenes([1]))
    torch.testing.assert_close(alone, model(known, cameras, asked)[1:], atol=1e-11, rtol=0)


@pytest.mark.parametrize("memory", MEMORIES)
def test_what_is_rendered_depends_on_the_inputs_where_there_is_a_memory(memory):
    model = model_of(memory)
    known, cameras, asked = split(*scenes())
    changed = known.clone()
    changed[:, 0] = 1 - changed[:, 0]
    difference = (model(changed, cameras, asked) - model(known, cameras, asked)).abs().max()
    assert (difference > 1e-6) == (memory != "none")


@pytest.mark.parametrize(("memory", "grows"), [("lact", False), ("perceiver", False), ("none", False), ("full", True)])
def test_the_size_of_a_state_by_the_number_of_views(memory, grows):
    model = model_of(memory)
    images, cameras = scenes(views=6)
    sizes = [model.reconstruct(images[:, :n], cameras.views(slice(0, n))).nbytes for n in (1, 3, 6)]
    assert (len(set(sizes)) == 3) == grows
    if memory == "lact":
        assert sizes[0] == TINY.layers * 2 * TINY.fast_heads * 3 * 8 * 12 * 8, "layers, scenes, heads, three matrices"


def test_a_state_survives_a_file(tmp_path):
    model = model_of()
    known, cameras, asked = split(*scenes())
    model.reconstruct(known, cameras).save(tmp_path / "scene.safetensors")
    state = LaCTState.load(tmp_path / "scene.safetensors", config=model.config.digest)
    assert torch.equal(model.render(state, asked), model.render(model.reconstruct(known, cameras), asked))


def test_a_state_of_another_model_or_another_number_of_scenes_is_refused():
    model, other = model_of(), model_of(expand=1.0)
    known, cameras, asked = split(*scenes())
    with pytest.raises(InputError, match="another configuration"):
        other.render(model.reconstruct(known, cameras), asked)
    with pytest.raises(InputError, match="the state holds 2 scenes; expected the cameras' 1"):
        model.render(model.reconstruct(known, cameras), asked.scenes([0]))


@pytest.mark.parametrize(
    ("size", "said"), [((5, 4), "nearest are 4 x 4"), ((4, 7), "nearest are 4 x 8"), ((1, 4), "nearest are 2 x 4")]
)
def test_sizes_that_do_not_fit_the_patches_name_the_nearest(size, said):
    cameras = Cameras(torch.eye(4).double().expand(1, 1, 4, 4), torch.ones(1, 1, 4).double(), *size)
    with pytest.raises(InputError, match=rf"images are {size[0]} x {size[1]} \(height x width\).*{said}"):
        model_of().reconstruct(torch.zeros(1, 1, 3, *size).double(), cameras)


def test_images_that_do_not_fit_their_cameras_are_refused():
    model = model_of()
    images, cameras = scenes()
    with pytest.raises(InputError, match="images have the shape"):
        model.reconstruct(images[:, :2], cameras)
    with pytest.raises(InputError, match="at least one view"):
        model.reconstruct(images[:, :0], cameras.views(slice(0, 0)))
    with pytest.raises(InputError, match=r"targets are 8 x 8; expected the input views' 4 x 4"):
        model(images, cameras, replace(cameras, height=8, width=8))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"head_dim": 5}, "dim is 16; expected a multiple of head_dim, 5"),
        ({"fast_heads": 3}, "dim is 16; expected a multiple of fast_heads, 3"),
        ({"layers": 0}, "layers is 0; expected at least 1"),
        ({"memory": "lstm"}, "memory is 'lstm'; expected one of: lact, full, perceiver, none"),
        ({"memory": "perceiver", "layers": 1}, "layers is 1; expected at least 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_sizes_of_a_model_are_refused(changes, said):
    with pytest.raises(InputError) as caught:
        replace(TINY, **changes)
    assert str(caught.value).startswith(said)


def test_training_reaches_every_parameter():
    model = model_of()
    known, cameras, asked = split(*scenes())
    model(known, cameras, asked).square().sum().backward()
    assert [name for name, one in model.named_parameters() if one.grad is None or not one.grad.abs().sum() > 0] == []


# The published layout: a plain computation, tensor by tensor, of what the released code does with its weights.


def as_published(
    tensors: dict[str, Tensor], images: Tensor, cameras: Cameras, inputs: int, config: ViewConfig
) -> Tensor:
    """All views in one go; those after the first `inputs` have no colour. Returns the images of the latter."""
    pixels = torch.cat((camera_rays(cameras), 2 * images.movedim(2, -1) - 1), dim=-1)
    pixels[:, inputs:, ..., 9:] = 0
    scenes, views, height, width, _ = pixels.shape
    p = config.patch
    patches = [
        pixels[:, :, row * p : row * p + p, column * p : column * p + p].reshape(scenes, views, -1)
        for row in range(height // p)
        for column in range(width // p)
    ]
    x = F.layer_norm(
        torch.stack(patches, 2) @ tensors["input_linear.weight"].T, (config.dim,), tensors["input_layernorm.weight"]
    )
    for number in range(config.layers):
        parts = [
            {
                name.removeprefix(f"blocks.{number}.module_list.{place}."): value
                for name, value in tensors.items()
                if name.startswith(f"blocks.{number}.module_list.{place}.")
            }
            for place in range(3)
        ]
        normed = [lambda x, part=part: F.layer_norm(x, (config.dim,), part["ln.weight"]) for part in parts]
        x = x + published_attention(parts[0], normed[0](x), config.head_dim)
        tokens = normed[1](x).flatten(1, 2)
        x = x + published_fast(parts[1], tokens, inputs * len(patches), config).view_as(x)
        hidden = F.gelu(normed[2](x) @ parts[2]["f.c_fc.weight"].T)
        x = x + hidden @ parts[2]["f.c_proj.weight"].T
    x = F.layer_norm(x, (config.dim,), tensors["image_token_decoder.0.weight"])
    colours = torch.sigmoid(x @ tensors["image_token_decoder.1.weight"].T)
    out = torch.zeros(scenes, views, height, width, 3, dtype=x.dtype)
    for place in range(len(patches)):
        row, column = divmod(place, width // p)
        cell = colours[:, :, place].view(scenes, views, p, p, 3)
        out[:, :, row * p : row * p + p, column * p : column * p + p] = cell
    return out[:, inputs:].movedim(-1, 2)


def published_attention(part: dict[str, Tensor], x: Tensor, head_dim: int) -> Tensor:
    scenes, views, tokens, dim = x.shape
    q, k, v = (x @ part["f.to_qkv.weight"].T).split(dim, dim=-1)
    q, k, v = (one.view(scenes, views, tokens, -1, head_dim).transpose(2, 3) for one in (q, k, v))
    q = F.rms_norm(q, (head_dim,), part["f.q_norm.weight"])
    k = F.rms_norm(k, (head_dim,), part["f.k_norm.weight"])
    answers = torch.softmax(q @ k.mT / math.sqrt(head_dim), -1) @ v
    return answers.transpose(2, 3).flatten(3) @ part["f.c_proj.weight"].T


def published_fast(part: dict[str, Tensor], x: Tensor, read: int, config: ViewConfig) -> Tensor:
    """Weights as published: (heads, in, out)."""
    scenes, length, dim = x.shape
    heads = config.fast_heads
    q, k, v = F.silu(x @ part["f.to_qkv.weight"].T).split(dim, dim=-1)
    q, k, v = (one.view(scenes, length, heads, -1).transpose(1, 2) for one in (q, k, v))
    q, k = (one / (one.norm(dim=-1, keepdim=True) + 1e-5) for one in (q, k))
    offset = 0.01 + math.log(-math.expm1(-0.01))
    rates = F.softplus(x @ part["f.lr_fc.weight"].T + part["f.lr_fc.bias"] + offset)
    rates = rates.view(scenes, length, 3, heads).permute(2, 0, 3, 1)[..., None]
    w0, w1, w2 = (part[f"f.{name}"] for name in ("w0", "w1", "w2"))
    k, v, rates = k[:, :, :read], v[:, :, :read], rates[:, :, :, :read]
    gate, up, back = k @ w0, k @ w2, v @ w1.mT
    sigma = torch.sigmoid(gate)
    steps = (
        (k * rates[0]).mT @ (back * up * sigma * (1 + gate * (1 - sigma))),
        (gate * sigma * up * rates[1]).mT @ v,
        (k * rates[2]).mT @ (back * gate * sigma),
    )
    after = []
    for weight, step in zip((w0, w1, w2), steps, strict=True):
        x_ = step / (step.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(5):
            a = x_ @ x_.mT
            x_ = 3.4445 * x_ + (-4.7750 * a + 2.0315 * a @ a) @ x_
        moved = weight + x_
        after.append(moved / (moved.norm(dim=-2, keepdim=True) + 1e-5) * weight.norm(dim=-2, keepdim=True))
    answers = (F.silu(q @ after[0]) * (q @ after[2])) @ after[1]
    normed = F.rms_norm(answers, answers.shape[-1:], part["f.o_norm.weight"], eps=1e-5)
    return normed.transpose(1, 2).flatten(2) @ part["f.c_proj.weight"].T


def test_weights_in_the_published_layout_compute_the_same_images():
    model = model_of()
    assert isinstance(model, LaCTViewSynthesis)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    images, cameras = scenes()
    known, seen, asked = split(images, cameras)
    expected = as_published(model.to_published(), images, cameras, 3, model.config)
    torch.testing.assert_close(model(known, seen, asked), expected, atol=1e-9, rtol=0)


def test_published_names_are_those_of_the_files_and_none_is_left_out():
    model = model_of()
    assert isinstance(model, LaCTViewSynthesis)
    assert set(published_names(model.config)) == set(model.state_dict())
    published = model.to_published()
    assert published["blocks.1.module_list.1.f.w0"].shape == (2, 8, 12)
    assert published["blocks.1.module_list.1.f.w1"].shape == (2, 12, 8)
    assert published["blocks.0.module_list.1.f.lr_fc.bias"].shape == (6,)
    assert len(published) == 4 + 2 * (3 + 4 + 5 + 3 + 2)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_a_published_checkpoint_round_trips(tmp_path, prefix):
    model = model_of().float()
    assert isinstance(model, LaCTViewSynthesis)
    content = {f"{prefix}{name}": value for name, value in model.to_published().items()}
    content = {name.replace("blocks.1.", "blocks.1._checkpoint_wrapped_module."): one for name, one in content.items()}
    torch.save({"model": content, "step": 3}, tmp_path / "obj.pt")
    loaded = load_view_model(tmp_path / "obj.pt")
    assert loaded.size is None
    assert loaded.model.config == replace(TINY, init_std=0.02, registers=4096)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value), name


def test_a_checkpoint_that_is_none_is_refused(tmp_path):
    model = model_of()
    assert isinstance(model, LaCTViewSynthesis)
    whole = model.to_published()
    for change, said in (
        ({"blocks.1.module_list.2.f.c_fc.weight": None}, "lacks blocks.1.module_list.2.f.c_fc.weight"),
        ({"extra": torch.zeros(1)}, "holds extra"),
        ({"input_linear.weight": None}, "lacks input_linear.weight"),
        ({"blocks.1.module_list.1.f.w1": torch.zeros(2, 8, 12)}, "w1 has the shape (2, 8, 12); expected (2, 12, 8)"),
    ):
        with pytest.raises(InputError) as caught:
            LaCTViewSynthesis.from_published({k: v for k, v in (whole | change).items() if v is not None})
        assert said in str(caught.value)
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04 and no more")
    for name, said in (("list.pt", "holds no tensors"), ("cut.pt", "can't be read"), ("none.pt", "no such file")):
        with pytest.raises(InputError, match=said):
            load_view_model(tmp_path / name)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_model_is_saved_with_its_sizes(tmp_path, memory):
    model = model_of(memory).float()
    save_view_model(model, tmp_path / "model", size=(4, 6), normalise=True)
    loaded = load_view_model(tmp_path / "model")
    assert (loaded.size, loaded.normalise, loaded.model.config) == ((4, 6), True, model.config)
    assert type(loaded.model) is type(model)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value), name


def test_damaged_models_are_named(tmp_path):
    folder = tmp_path / "model"
    with pytest.raises(InputError, match="no such folder"):
        load_view_model(folder)
    save_view_model(model_of(), folder, size=(4, 4))
    config, weights = folder / "config.json", folder / "model.safetensors"
    whole = config.read_text(), weights.read_bytes()
    for text, said in (
        ("{", "is not JSON"),
        ("{}", "is another kind of model"),
        (whole[0].replace('"dim"', '"depth"'), "the view model has no setting 'depth'"),
        (whole[0].replace('"image_size"', '"size"'), "lacks sizes"),
        (whole[0].replace('"expand": 1.5', '"expand": 2.0'), "doesn't fit config.json"),
    ):
        config.write_text(text)
        with pytest.raises(InputError, match=said):
            load_view_model(folder)
    config.write_text(whole[0])
    weights.write_bytes(whole[1][:100])
    with pytest.raises(InputError, match="damaged"):
        load_view_model(folder)


def test_the_plain_class_takes_the_other_memories_only_by_its_own_name():
    with pytest.raises(InputError, match="memory is 'full'; expected lact"):
        LaCTViewSynthesis(replace(TINY, memory="full"))
