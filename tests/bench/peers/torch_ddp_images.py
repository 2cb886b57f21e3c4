"""--model small_cnn: 28x28 conv(1,32,3)-relu-conv(32,64,3)-relu-pool2-fc(9216,10). --model resnet18: 3x3 stem, no
max pool, on 3x32x32 images. Cross entropy, SGD momentum, on synthetic data."""
import os
import sys

import torch
from torch import nn

import torch_common as tc

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reference"))
import torch_models

a = tc.options(batch=32, steps=40, warmup=5, extra={"model": "small_cnn"})
tc.start(a)
image = [1, 28, 28] if a.model == "small_cnn" else [3, 32, 32]
options = {"classes": 10} if a.model == "small_cnn" else {"depth": 18, "classes": 10, "channels": 3, "width": 64, "small_stem": True}
model = torch_models.make_model({"model": "small_cnn" if a.model == "small_cnn" else "resnet", "image": image, "options": options})
tc.train(a.model, model,
         lambda g: (torch.randn(a.batch, *image, generator=g), torch.randint(10, (a.batch,), generator=g)),
         nn.CrossEntropyLoss(), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), a)
